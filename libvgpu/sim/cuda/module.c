/* module.c - modules, libraries and kernels: any image loads, any name is found. */
#include "cuda.h"

static struct { void *word[4]; } a_module;

static CUresult load(void **out, const void *image) {
    CURRENT(c);
    (void)c;
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_MODULE);
    *out = &a_module;
    return CUDA_SUCCESS;
}
ENTRY cuModuleLoad(void **m, const char *file) { return load(m, file); }
ENTRY cuModuleLoadData(void **m, const void *image) { return load(m, image); }
ENTRY cuModuleLoadDataEx(void **m, const void *image, unsigned n, void *options, void **values) {
    return load(m, image);
}
ENTRY cuModuleLoadFatBinary(void **m, const void *image) { return load(m, image); }

/* unlike a module, a library needs no context */
ENTRY cuLibraryLoadData(void **out, const void *image, void *a, void **b, unsigned n, void *c, void **d,
                        unsigned k) {
    READY();
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_MODULE);
    *out = &a_module;
    return CUDA_SUCCESS;
}
SAME(cuLibraryLoadFromFile, cuLibraryLoadData);

static CUresult part(void **out, const void *whole, void *answer) {
    READY();
    if (!out || !whole)
        return CUDA_ERROR_INVALID_VALUE;
    *out = answer;
    return CUDA_SUCCESS;
}
ENTRY cuModuleGetFunction(void **f, void *m, const char *name) {
    return part(f, name ? m : NULL, name ? sim_kernel_named(name) : NULL);
}
ENTRY cuLibraryGetKernel(void **k, void *l, const char *name) {
    return part(k, name ? l : NULL, name ? sim_kernel_named(name) : NULL);
}
ENTRY cuLibraryGetModule(void **m, void *l) { return part(m, l, &a_module); }
/* one handle for both */
ENTRY cuKernelGetFunction(void **f, void *k) { return part(f, k, k); }
ENTRY cuKernelGetLibrary(void **l, void *k) { return part(l, k, &a_module); }
ENTRY cuFuncGetModule(void **m, void *f) { return part(m, f, &a_module); }

static CUresult accept(const void *object) {
    READY();
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuModuleUnload(void *m) { return accept(m); }
ENTRY cuLibraryUnload(void *l) { return accept(l); }
ENTRY cuFuncSetAttribute(void *f, int attribute, int value) { return accept(f); }
ENTRY cuFuncSetCacheConfig(void *f, int value) { return accept(f); }
ENTRY cuFuncSetSharedMemConfig(void *f, int value) { return accept(f); }
ENTRY cuFuncSetBlockShape(void *f, int x, int y, int z) { return accept(f); }
ENTRY cuFuncSetSharedSize(void *f, unsigned n) { return accept(f); }
ENTRY cuFuncLoad(void *f) { return accept(f); }
ENTRY cuKernelSetAttribute(int attribute, int value, void *k, CUdevice d) { return accept(k); }
ENTRY cuKernelSetCacheConfig(void *k, int value, CUdevice d) { return accept(k); }

static CUresult number(int *out, const void *object, int value) {
    READY();
    if (!out || !object)
        return CUDA_ERROR_INVALID_VALUE;
    *out = value;
    return CUDA_SUCCESS;
}
ENTRY cuFuncIsLoaded(int *state, void *f) { return number(state, f, 1); }
ENTRY cuFuncGetAttribute(int *out, int attribute, void *f) {
    return number(out, f, attribute == 0 ? 1024 : attribute == 4 ? 32 : 0); /* threads; registers */
}
ENTRY cuKernelGetAttribute(int *out, int attribute, void *k, CUdevice d) {
    return cuFuncGetAttribute(out, attribute, k);
}

static CUresult name(const char **out, const void *object) {
    READY();
    if (!out || !object)
        return CUDA_ERROR_INVALID_VALUE;
    *out = "kernel";
    return CUDA_SUCCESS;
}
ENTRY cuFuncGetName(const char **out, void *f) { return name(out, f); }
ENTRY cuKernelGetName(const char **out, void *k) { return name(out, k); }

ENTRY cuModuleGetLoadingMode(int *mode) {
    READY();
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

static CUresult no_global(const void *whole) {
    READY();
    return whole ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *n, void *m, const char *symbol) { return no_global(m); }
ENTRY cuLibraryGetGlobal(CUdeviceptr *at, size_t *n, void *l, const char *symbol) { return no_global(l); }
ENTRY cuLibraryGetManaged(CUdeviceptr *at, size_t *n, void *l, const char *symbol) { return no_global(l); }

ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *f, int threads, size_t shared) {
    return threads > 0 && threads <= 1024 ? number(out, f, 1536 / threads < 24 ? 1536 / threads : 24)
                                          : CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, void *f, int threads, size_t shared,
                                                           unsigned flags) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(out, f, threads, shared);
}
ENTRY cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads, void *f, void *g, size_t shared, int most) {
    CURRENT(c);
    int all = (int)sim_config()->machine.card[c->card].multiprocessors;
    CUresult result = number(blocks, f, 2 * all);
    return result ? result : number(threads, f, most > 0 && most < 768 ? most : 768);
}
ENTRY cuOccupancyMaxPotentialBlockSizeWithFlags(int *blocks, int *threads, void *f, void *g, size_t shared,
                                                int most, unsigned flags) {
    return cuOccupancyMaxPotentialBlockSize(blocks, threads, f, g, shared, most);
}
