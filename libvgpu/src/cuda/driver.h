/* driver.h - the real driver's functions, found once, by name. */
#ifndef GAIA_DRIVER_H
#define GAIA_DRIVER_H

#include "gaia_cuda_abi.h"
#include <stdatomic.h>
#include <stdbool.h>

#define GAIA_EXPORT __attribute__((visibility("default")))

struct gaia_driver {
#define X(name, parameters) gaia_cu_result(*name) parameters;
    GAIA_CUDA_HOOKED(X) GAIA_CUDA_ASKED(X)
#undef X
};

extern struct gaia_driver gaia_driver_calls;
extern _Atomic bool gaia_driver_ready;
void gaia_driver_find(void);

/* A function that this driver does not have answers CUDA_ERROR_NOT_SUPPORTED: programs reach ours by
 * its exported name although an old driver has none, and must not jump to 0. */
static inline const struct gaia_driver *gaia_driver(void) {
    /* Acquire pairs with the release after the last pointer was stored. */
    if (__builtin_expect(!atomic_load_explicit(&gaia_driver_ready, memory_order_acquire), 0))
        gaia_driver_find();
    return &gaia_driver_calls;
}

#endif
