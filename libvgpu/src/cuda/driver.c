#define _GNU_SOURCE
#include "cuda/driver.h"
#include "core/glibc.h"
#include "core/place.h"
#include <dlfcn.h>

struct gaia_driver gaia_driver_calls;
_Atomic bool gaia_driver_ready;

static gaia_cu_result absent(void) { return GAIA_CU_NOT_SUPPORTED; }

static void *find(void *library, const char *name) {
    void *function = library ? dlsym(library, name) : NULL;
    return function ? function : (void *)(size_t)absent;
}

/* Any number of threads may do this at once: they all store the same pointers. No lock, because one
 * that is held at the moment of a fork would never be dropped in the child. */
void gaia_driver_find(void) {
    char path[GAIA_PATH];
    void *library = NULL;
    if (gaia_place_driver(path, sizeof path, "libcuda.so.1") == 0) {
        /* loaded with us already, as our DT_NEEDED; never a second copy, unless there is none */
        library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (!library)
            library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
#define X(name, parameters)                                                                                  \
    __atomic_store_n((void **)&gaia_driver_calls.name, find(library, #name), __ATOMIC_RELAXED);
    GAIA_CUDA_HOOKED(X)
    GAIA_CUDA_ASKED(X)
#undef X
    /* Release: a thread that sees "ready" sees every pointer. */
    atomic_store_explicit(&gaia_driver_ready, true, memory_order_release);
}
