/* launch.c - kernels: nothing is computed, but they take the card's modelled time. */
#include "cuda.h"

CUresult sim_launch(CUstream handle, uint64_t kernels, uint64_t blocks) {
    CURRENT(c);
    struct sim_stream *s;
    CUresult result = sim_stream_of(handle, c, &s);
    if (unlikely(result))
        return result;
    TROUBLE(SIM_LAUNCH);
    if (unlikely(s->capture)) {
        s->graph->nodes++;
        s->graph->kernels += kernels;
        s->graph->blocks += blocks;
        return CUDA_SUCCESS;
    }
    const struct sim_config *config = sim_config();
    struct sim_process *me = sim_here->process;
    /* this process's own word, on its own cache line; threads may lose a count, the totals do not use it */
    sim_word *launches = &me->card[c->card].launches;
    atomic_store_explicit(launches, atomic_load_explicit(launches, memory_order_relaxed) + kernels,
                          memory_order_relaxed);
    uint64_t ns = config->kernel_ns * kernels + config->block_ns * blocks;
    if (likely(ns == 0))
        return CUDA_SUCCESS;
    uint64_t end = sim_occupy(me, c->card, ns);
    if (atomic_load_explicit(&s->end, memory_order_relaxed) < end)
        atomic_store_explicit(&s->end, end, memory_order_relaxed);
    return CUDA_SUCCESS;
}

static CUresult grid(CUstream s, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz) {
    if (unlikely((uint64_t)x * y * z == 0 || (uint64_t)bx * by * bz == 0 || (uint64_t)bx * by * bz > 1024))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_launch(s, 1, (uint64_t)x * y * z);
}

ENTRY cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared, CUstream s, void **parameters, void **extra) {
    return grid(s, x, y, z, bx, by, bz);
}
SAME(cuLaunchKernel_ptsz, cuLaunchKernel);

ENTRY cuLaunchCooperativeKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                                unsigned bz, unsigned shared, CUstream s, void **parameters) {
    return grid(s, x, y, z, bx, by, bz);
}
SAME(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel);

struct launch {
    unsigned grid[3], block[3], shared;
    CUstream stream;
};

ENTRY cuLaunchKernelEx(const struct launch *l, void *f, void **parameters, void **extra) {
    READY();
    if (!l)
        return CUDA_ERROR_INVALID_VALUE;
    return grid(l->stream, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
}
SAME(cuLaunchKernelEx_ptsz, cuLaunchKernelEx);

/* CUDA_LAUNCH_PARAMS: as above with the function in front */
struct multi {
    void *function;
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void **parameters;
};
ENTRY cuLaunchCooperativeKernelMultiDevice(const struct multi *list, unsigned count, unsigned flags) {
    READY();
    if (!list || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const struct multi *l = &list[i];
        CUresult r =
            grid(l->stream, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
        if (r)
            return r;
    }
    return CUDA_SUCCESS;
}

/* the launches of the first CUDA versions; their block shape is set on the function */
ENTRY cuLaunch(void *f) { return sim_launch(NULL, 1, 1); }
ENTRY cuLaunchGrid(void *f, int x, int y) {
    return x > 0 && y > 0 ? sim_launch(NULL, 1, (uint64_t)x * (uint64_t)y) : CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuLaunchGridAsync(void *f, int x, int y, CUstream s) {
    return x > 0 && y > 0 ? sim_launch(s, 1, (uint64_t)x * (uint64_t)y) : CUDA_ERROR_INVALID_VALUE;
}
