/* stream.c - streams. A process's work on a card runs in the order of submission, whatever the streams. */
#include "cuda.h"
#include <stdlib.h>

#define STREAM_MAGIC UINT64_C(0x53747265616d2121)
#define NON_BLOCKING 1 /* it does not wait for the default stream */

/* the default streams, whichever context is current: everybody's, and each thread's own */
static struct sim_stream standard[SIM_CARDS];
static __thread struct {
    unsigned epoch;
    struct sim_stream stream[SIM_CARDS];
} own;
static _Atomic uint64_t next_id = 16;

void sim_streams_forget(void) { memset(standard, 0, sizeof standard); }

static struct sim_stream *own_stream(unsigned card) {
    if (unlikely(own.epoch != sim_epoch)) {
        memset(&own, 0, sizeof own);
        own.epoch = sim_epoch;
    }
    return &own.stream[card];
}

static bool is_standard(const struct sim_stream *s) { return s >= standard && s < standard + SIM_CARDS; }

CUresult sim_stream_of(CUstream handle, struct sim_context *c, struct sim_stream **out) {
    *out = NULL;
    if ((uintptr_t)handle <= 2) {
        unsigned card = c ? c->card : 0;
        *out = (uintptr_t)handle == 2 ? own_stream(card) : &standard[card];
        return CUDA_SUCCESS;
    }
    if ((uintptr_t)handle % 16 || handle->magic != STREAM_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    return CUDA_SUCCESS;
}

ENTRY cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    CURRENT(c);
    void *p = NULL;
    if (!out || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_STREAM);
    if (posix_memalign(&p, 64, sizeof(struct sim_stream)) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_stream *s = memset(p, 0, sizeof *s);
    s->magic = STREAM_MAGIC;
    s->context = c;
    s->flags = flags;
    s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    s->id = atomic_fetch_add(&next_id, 1);
    *out = s;
    return CUDA_SUCCESS;
}
ENTRY cuStreamCreate(CUstream *out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

ENTRY cuStreamDestroy_v2(CUstream handle) {
    READY();
    struct sim_stream *s;
    if ((uintptr_t)handle <= 2 || sim_stream_of(handle, NULL, &s))
        return CUDA_ERROR_INVALID_HANDLE;
    s->magic = 0;
    free(s);
    return CUDA_SUCCESS;
}

uint64_t sim_stream_end(const struct sim_stream *s, unsigned card) {
    if (is_standard(s))
        return atomic_load_explicit(&sim_here->process->card[card].submitted, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&s->end, memory_order_relaxed);
    uint64_t before = atomic_load_explicit(&standard[card].end, memory_order_relaxed);
    return s->flags & NON_BLOCKING || end > before ? end : before;
}

/* what a call does that returns when the stream's work is done */
static void finish(const struct sim_stream *s, const struct sim_context *c) {
    unsigned card = sim_stream_card(s, c);
    sim_await(sim_here->process, card, sim_stream_end(s, card));
}

ENTRY cuStreamSynchronize(CUstream handle) {
    STREAM(s, handle);
    TROUBLE(SIM_SYNC);
    if (s->capture || sim_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    finish(s, context_);
    sim_pools_synchronised();
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamSynchronize, (CUstream s), (THREADS(s)))

ENTRY cuCtxSynchronize(void) {
    CURRENT(c);
    TROUBLE(SIM_SYNC);
    CUresult forbidden = sim_capture_forbids();
    if (forbidden)
        return forbidden;
    sim_await(sim_here->process, c->card, sim_stream_end(&standard[c->card], c->card));
    sim_pools_synchronised();
    return CUDA_SUCCESS;
}
ENTRY cuCtxSynchronize_v2(CUcontext c) { return cuCtxSynchronize(); }

ENTRY cuStreamQuery(CUstream handle) {
    STREAM(s, handle);
    TROUBLE(SIM_SYNC);
    if (s->capture || sim_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    unsigned card = sim_stream_card(s, context_);
    bool done = sim_reached(sim_here->process, card, sim_stream_end(s, card));
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
PER_THREAD(cuStreamQuery, (CUstream s), (THREADS(s)))

#define GETTER(name, type, value)                                                                            \
    ENTRY name(CUstream handle, type *out) {                                                                 \
        STREAM(s, handle);                                                                                   \
        if (!out)                                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
        *out = value;                                                                                        \
        return CUDA_SUCCESS;                                                                                 \
    }                                                                                                        \
    PER_THREAD(name, (CUstream s, type * out), (THREADS(s), out))
GETTER(cuStreamGetFlags, unsigned, s->flags)
GETTER(cuStreamGetPriority, int, s->priority)
GETTER(cuStreamGetId, unsigned long long, s->id ? s->id : (uintptr_t)handle)
GETTER(cuStreamGetDevice, CUdevice, s->context ? s->context->device : context_->device)
GETTER(cuStreamGetCtx, CUcontext, s->context ? s->context : context_)

ENTRY cuStreamGetCtx_v2(CUstream handle, CUcontext *out, void **green) {
    if (green)
        *green = NULL;
    return cuStreamGetCtx(handle, out);
}
PER_THREAD(cuStreamGetCtx_v2, (CUstream s, CUcontext *out, void **green), (THREADS(s), out, green))

ENTRY cuStreamAttachMemAsync(CUstream handle, CUdeviceptr at, size_t n, unsigned flags) {
    STREAM(s, handle);
    (void)s;
    return sim_block_find(at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SAME(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync);

/* host functions run when they are submitted, after the work before them */
ENTRY cuLaunchHostFunc(CUstream handle, void (*function)(void *), void *argument) {
    STREAM(s, handle);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture)
        return CUDA_SUCCESS;
    finish(s, context_);
    function(argument);
    return CUDA_SUCCESS;
}
PER_THREAD(cuLaunchHostFunc, (CUstream s, void (*function)(void *), void *argument),
           (THREADS(s), function, argument))

ENTRY cuStreamAddCallback(CUstream handle, void (*function)(CUstream, CUresult, void *), void *argument,
                          unsigned flags) {
    STREAM(s, handle);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    finish(s, context_);
    function(handle, CUDA_SUCCESS, argument);
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamAddCallback,
           (CUstream s, void (*function)(CUstream, CUresult, void *), void *argument, unsigned flags),
           (THREADS(s), function, argument, flags))
