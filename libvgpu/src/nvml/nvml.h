/* nvml.h - the real NVML's functions, the slot's pages (read only: this library registers nothing and
 * allocates nothing), and what both hook families share. */
#ifndef GAIA_NVML_H
#define GAIA_NVML_H

#include "core/account.h"
#include "gaia_nvml_abi.h"

#define GAIA_EXPORT __attribute__((visibility("default")))

#define X(name, parameters) GAIA_EXPORT gaia_nvml_result name parameters;
GAIA_NVML_HOOKED(X)
#undef X

struct gaia_nvml {
#define X(name, parameters) gaia_nvml_result(*name) parameters;
    GAIA_NVML_HOOKED(X) GAIA_NVML_ASKED(X)
#undef X
};

const struct gaia_nvml *gaia_nvml(void);

/* The slot's pages, or NULL when there are no valid ones. */
const struct gaia_pages *gaia_nvml_pages(void);

/* Index in `limits` of DEVICE's card, or -1: no slice of this slot. */
int gaia_nvml_card(const struct gaia_pages *pages, gaia_nvml_device device);

/* "GPU-5c1f..." or "MIG-..." to the 16 bytes of a CUuuid. */
bool gaia_uuid_parse(const char *text, unsigned char uuid[16]);

/* Whether PID is one of the slot's processes. */
bool gaia_nvml_ours(const struct gaia_pages *pages, unsigned pid);

#endif
