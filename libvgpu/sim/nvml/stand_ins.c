/* stand_ins.c - names that resolve without being modelled: what a card lacks is NOT_SUPPORTED. */
#include "nvml.h"

static nvmlReturn_t stand_in(const char *name) {
    sim_trace("stand-in %s", name);
    return sim_nvml_ready() ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}

#define N(name)                                                                                              \
    __attribute__((weak, visibility("default"))) nvmlReturn_t name(void);                                    \
    nvmlReturn_t name(void) { return stand_in(#name); }
#include "symbols.def"
#undef N
