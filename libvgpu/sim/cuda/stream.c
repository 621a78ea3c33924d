/* stream.c - streams and events. Work of all streams of a card lies on its one timeline. */
#include "cuda.h"
#include <stdlib.h>

#define STREAM_MAGIC UINT64_C(0x53747265616d2121)
#define EVENT_MAGIC UINT64_C(0x4576656e74212121)

static struct sim_stream standard; /* the default streams, whichever context is current */
static _Atomic uint64_t next_id = 16;

void sim_streams_forget(void) { memset(&standard, 0, sizeof standard); }

CUresult sim_stream_of(CUstream handle, struct sim_context *c, struct sim_stream **out) {
    *out = NULL;
    if ((uintptr_t)handle <= 2) {
        *out = &standard;
        return CUDA_SUCCESS;
    }
    if ((uintptr_t)handle % 16 || handle->magic != STREAM_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    return CUDA_SUCCESS;
}

#define STREAM(s, handle)                                                                                    \
    CURRENT(context_);                                                                                       \
    struct sim_stream *s;                                                                                    \
    do {                                                                                                     \
        CUresult found_ = sim_stream_of(handle, context_, &s);                                               \
        if (unlikely(found_))                                                                                \
            return found_;                                                                                   \
    } while (0)

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
    if (sim_stream_of(handle, NULL, &s) || s == &standard)
        return CUDA_ERROR_INVALID_HANDLE;
    s->magic = 0;
    free(s);
    return CUDA_SUCCESS;
}

static uint64_t end_of(const struct sim_stream *s, const struct sim_context *c) {
    /* the default stream waits for all others */
    return s == &standard ? atomic_load(&sim_here->process->card[c->card].end_ns) : atomic_load(&s->end);
}

ENTRY cuStreamSynchronize(CUstream handle) {
    STREAM(s, handle);
    TROUBLE(SIM_SYNC);
    if (s->capture || sim_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_wait_until(end_of(s, context_));
    sim_pools_synchronised();
    return CUDA_SUCCESS;
}
SAME(cuStreamSynchronize_ptsz, cuStreamSynchronize);

ENTRY cuCtxSynchronize(void) {
    CURRENT(c);
    TROUBLE(SIM_SYNC);
    CUresult forbidden = sim_capture_forbids();
    if (forbidden)
        return forbidden;
    sim_wait_until(atomic_load(&sim_here->process->card[c->card].end_ns));
    sim_pools_synchronised();
    return CUDA_SUCCESS;
}
ENTRY cuCtxSynchronize_v2(CUcontext c) { return cuCtxSynchronize(); }

ENTRY cuStreamQuery(CUstream handle) {
    STREAM(s, handle);
    TROUBLE(SIM_SYNC);
    if (s->capture || sim_capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return sim_now() < end_of(s, context_) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
SAME(cuStreamQuery_ptsz, cuStreamQuery);

#define GETTER(name, type, value)                                                                            \
    ENTRY name(CUstream handle, type *out) {                                                                 \
        STREAM(s, handle);                                                                                   \
        if (!out)                                                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
        *out = value;                                                                                        \
        return CUDA_SUCCESS;                                                                                 \
    }                                                                                                        \
    SAME(name##_ptsz, name)
GETTER(cuStreamGetFlags, unsigned, s->flags);
GETTER(cuStreamGetPriority, int, s->priority);
GETTER(cuStreamGetId, unsigned long long, s->id ? s->id : (uintptr_t)handle);
GETTER(cuStreamGetDevice, CUdevice, s->context ? s->context->device : context_->device);
GETTER(cuStreamGetCtx, CUcontext, s->context ? s->context : context_);

ENTRY cuStreamGetCtx_v2(CUstream handle, CUcontext *out, void **green) {
    if (green)
        *green = NULL;
    return cuStreamGetCtx(handle, out);
}
SAME(cuStreamGetCtx_v2_ptsz, cuStreamGetCtx_v2);

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
    sim_wait_until(end_of(s, context_));
    function(argument);
    return CUDA_SUCCESS;
}
SAME(cuLaunchHostFunc_ptsz, cuLaunchHostFunc);

ENTRY cuStreamAddCallback(CUstream handle, void (*function)(CUstream, CUresult, void *), void *argument,
                          unsigned flags) {
    STREAM(s, handle);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    sim_wait_until(end_of(s, context_));
    function(handle, CUDA_SUCCESS, argument);
    return CUDA_SUCCESS;
}
SAME(cuStreamAddCallback_ptsz, cuStreamAddCallback);

/* ---- events ------------------------------------------------------------------------------------------- */

struct sim_event {
    uint64_t magic;
    unsigned flags;
    bool captured;
    _Atomic uint64_t at; /* when it is, or will be, reached; 0 = not recorded */
};

static bool event_valid(const struct sim_event *e) {
    return e && (uintptr_t)e % 16 == 0 && e->magic == EVENT_MAGIC;
}
#define EVENT(e)                                                                                             \
    READY();                                                                                                 \
    if (!event_valid(e))                                                                                     \
    return CUDA_ERROR_INVALID_HANDLE

ENTRY cuEventCreate(CUevent *out, unsigned flags) {
    CURRENT(c);
    (void)c;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_STREAM);
    struct sim_event *e = calloc(1, sizeof *e); /* malloc aligns to 16 */
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->magic = EVENT_MAGIC;
    e->flags = flags;
    *out = e;
    return CUDA_SUCCESS;
}

ENTRY cuEventDestroy_v2(CUevent e) {
    EVENT(e);
    e->magic = 0;
    free(e);
    return CUDA_SUCCESS;
}

ENTRY cuEventRecordWithFlags(CUevent e, CUstream handle, unsigned flags) {
    STREAM(s, handle);
    EVENT(e);
    uint64_t now = sim_now(), end = end_of(s, context_);
    e->captured = s->capture == 1;
    if (!e->captured)
        atomic_store(&e->at, end > now ? end : now);
    return CUDA_SUCCESS;
}
SAME(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags);
ENTRY cuEventRecord(CUevent e, CUstream handle) { return cuEventRecordWithFlags(e, handle, 0); }
SAME(cuEventRecord_ptsz, cuEventRecord);

ENTRY cuEventQuery(CUevent e) {
    EVENT(e);
    TROUBLE(SIM_SYNC);
    CUresult forbidden = sim_capture_forbids();
    if (forbidden || e->captured)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return sim_now() < atomic_load(&e->at) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

ENTRY cuEventSynchronize(CUevent e) {
    EVENT(e);
    TROUBLE(SIM_SYNC);
    CUresult forbidden = sim_capture_forbids();
    if (forbidden || e->captured)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_wait_until(atomic_load(&e->at));
    sim_pools_synchronised();
    return CUDA_SUCCESS;
}

ENTRY cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    EVENT(a);
    EVENT(b);
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    if ((a->flags | b->flags) & 2 || !a->at || !b->at) /* no timing, or not recorded */
        return CUDA_ERROR_INVALID_HANDLE;
    if (sim_now() < a->at || sim_now() < b->at)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(b->at - a->at) / 1e6);
    return CUDA_SUCCESS;
}
SAME(cuEventElapsedTime_v2, cuEventElapsedTime);

ENTRY cuStreamWaitEvent(CUstream handle, CUevent e, unsigned flags) {
    STREAM(s, handle);
    EVENT(e);
    if (s != &standard && atomic_load(&s->end) < atomic_load(&e->at))
        atomic_store(&s->end, atomic_load(&e->at));
    return CUDA_SUCCESS;
}
SAME(cuStreamWaitEvent_ptsz, cuStreamWaitEvent);
