/* launch.c - kernels: nothing is computed, but they take the card's modelled time. */
#include "cuda.h"

/* Submit `ns` of work in `count` kernels; a capture records it instead. */
static CUresult submit(struct sim_stream *s, struct sim_context *c, uint64_t count, uint64_t ns) {
    TROUBLE(SIM_LAUNCH);
    if (unlikely(s->capture)) {
        s->graph->nodes++;
        s->graph->kernels += count;
        s->graph->ns += ns;
        return CUDA_SUCCESS;
    }
    struct sim_process *me = sim_here->process;
    unsigned card = sim_stream_card(s, c);
    /* this process's own word, on its own cache line; threads may lose a count, the totals do not use it */
    sim_word *launches = &me->card[card].launches;
    atomic_store_explicit(launches, atomic_load_explicit(launches, memory_order_relaxed) + count,
                          memory_order_relaxed);
    if (likely(ns == 0))
        return CUDA_SUCCESS;
    uint64_t end = sim_submit(me, card, ns), last = atomic_load_explicit(&s->end, memory_order_relaxed);
    while (last < end && !atomic_compare_exchange_weak_explicit(&s->end, &last, end, memory_order_relaxed,
                                                                memory_order_relaxed)) {
    }
    return CUDA_SUCCESS;
}

CUresult sim_launch_graph(CUstream handle, const struct sim_graph *graph) {
    CURRENT(c);
    struct sim_stream *s;
    CUresult result = sim_stream_of(handle, c, &s);
    return unlikely(result) ? result : submit(s, c, graph->kernels, graph->ns);
}

static CUresult launch(const void *f, CUstream handle, uint64_t blocks) {
    CURRENT(c);
    struct sim_stream *s;
    CUresult result = sim_stream_of(handle, c, &s);
    return unlikely(result) ? result : submit(s, c, 1, sim_kernel_ns(f, sim_stream_card(s, c), blocks));
}

static CUresult grid(const void *f, CUstream s, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                     unsigned bz) {
    if (unlikely((uint64_t)x * y * z == 0 || (uint64_t)bx * by * bz == 0 || (uint64_t)bx * by * bz > 1024))
        return CUDA_ERROR_INVALID_VALUE;
    return launch(f, s, (uint64_t)x * y * z);
}

ENTRY cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                     unsigned shared, CUstream s, void **parameters, void **extra) {
    return grid(f, s, x, y, z, bx, by, bz);
}
PER_THREAD(cuLaunchKernel,
           (void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
            unsigned shared, CUstream s, void **parameters, void **extra),
           (f, x, y, z, bx, by, bz, shared, THREADS(s), parameters, extra))

ENTRY cuLaunchCooperativeKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                                unsigned bz, unsigned shared, CUstream s, void **parameters) {
    return grid(f, s, x, y, z, bx, by, bz);
}
PER_THREAD(cuLaunchCooperativeKernel,
           (void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
            unsigned shared, CUstream s, void **parameters),
           (f, x, y, z, bx, by, bz, shared, THREADS(s), parameters))

struct launch {
    unsigned grid[3], block[3], shared;
    CUstream stream;
};

ENTRY cuLaunchKernelEx(const struct launch *l, void *f, void **parameters, void **extra) {
    READY();
    if (!l)
        return CUDA_ERROR_INVALID_VALUE;
    return grid(f, l->stream, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2]);
}
ENTRY cuLaunchKernelEx_ptsz(const struct launch *l, void *f, void **parameters, void **extra) {
    READY();
    if (!l)
        return CUDA_ERROR_INVALID_VALUE;
    struct launch own = *l;
    own.stream = THREADS(l->stream);
    return cuLaunchKernelEx(&own, f, parameters, extra);
}

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
        CUresult r = grid(l->function, l->stream, l->grid[0], l->grid[1], l->grid[2], l->block[0],
                          l->block[1], l->block[2]);
        if (r)
            return r;
    }
    return CUDA_SUCCESS;
}

/* the launches of the first CUDA versions; their block shape is set on the function */
ENTRY cuLaunch(void *f) { return launch(f, NULL, 1); }
ENTRY cuLaunchGrid(void *f, int x, int y) {
    return x > 0 && y > 0 ? launch(f, NULL, (uint64_t)x * (uint64_t)y) : CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuLaunchGridAsync(void *f, int x, int y, CUstream s) {
    return x > 0 && y > 0 ? launch(f, s, (uint64_t)x * (uint64_t)y) : CUDA_ERROR_INVALID_VALUE;
}
