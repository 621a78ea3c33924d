/* event.c - events: when a stream's work has reached a point of the card's timeline. */
#include "cuda.h"
#include <stdlib.h>

#define EVENT_MAGIC UINT64_C(0x4576656e74212121)

struct sim_event {
    uint64_t magic;
    unsigned flags, epoch;
    bool captured;
    _Atomic bool pending; /* recorded, and not known yet when it is reached; then it is in its card's list: */
    unsigned card;
    uint64_t position; /* that its stream's work then reached */
    struct sim_event *next, *previous;
    _Atomic uint64_t at; /* CLOCK_MONOTONIC ns when it was reached; 0 = not yet, or not recorded */
};

/* Pending events per card, in the order of recording; under the card's lock. They are resolved at every
 * record, since the turns that tell their time are not kept for ever. */
static struct list { struct sim_event *first, *last; } lists[SIM_CARDS];

void sim_events_forget(void) { memset(lists, 0, sizeof lists); }

static bool valid(const struct sim_event *e) {
    return e && (uintptr_t)e % 16 == 0 && e->magic == EVENT_MAGIC && e->epoch == sim_epoch;
}
#define EVENT(e)                                                                                             \
    READY();                                                                                                 \
    if (!valid(e))                                                                                           \
    return CUDA_ERROR_INVALID_HANDLE

static void unlink_event(struct sim_event *e) {
    struct list *list = &lists[e->card];
    *(e->previous ? &e->previous->next : &list->first) = e->next;
    *(e->next ? &e->next->previous : &list->last) = e->previous;
    e->next = e->previous = NULL;
    atomic_store_explicit(&e->pending, false, memory_order_release);
}

static void link_event(struct sim_event *e, unsigned card) {
    struct list *list = &lists[card];
    e->card = card;
    e->next = NULL;
    e->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = e;
    list->last = e;
    atomic_store_explicit(&e->pending, true, memory_order_release);
}

/* Under the card's lock: true when the event is reached, and then its time is known. */
static bool resolve(struct sim_timeline *t, struct sim_event *e) {
    uint64_t at = sim_passed(t, sim_here->process, e->card, e->position);
    if (at == 0)
        return false;
    atomic_store_explicit(&e->at, at, memory_order_relaxed);
    unlink_event(e);
    return true;
}

static bool pending(const struct sim_event *e) {
    return atomic_load_explicit(&e->pending, memory_order_acquire);
}

static void withdraw(struct sim_event *e) {
    if (!pending(e))
        return;
    struct sim_timeline *t = sim_card_lock(e->card);
    if (pending(e))
        unlink_event(e);
    sim_card_unlock(t);
}

ENTRY cuEventCreate(CUevent *out, unsigned flags) {
    CURRENT(c);
    (void)c;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_EVENT_CREATE);
    struct sim_event *e = calloc(1, sizeof *e); /* malloc aligns to 16 */
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->magic = EVENT_MAGIC;
    e->flags = flags;
    e->epoch = sim_epoch;
    *out = e;
    return CUDA_SUCCESS;
}

ENTRY cuEventDestroy_v2(CUevent e) {
    EVENT(e);
    withdraw(e);
    e->magic = 0;
    free(e);
    return CUDA_SUCCESS;
}

ENTRY cuEventRecordWithFlags(CUevent e, CUstream handle, unsigned flags) {
    STREAM(s, handle);
    EVENT(e);
    TROUBLE(SIM_EVENT_RECORD);
    struct sim_process *me = sim_here->process;
    unsigned card = sim_stream_card(s, context_);
    uint64_t position = sim_stream_end(s, card);
    withdraw(e);
    e->captured = s->capture == 1;
    if (e->captured)
        return CUDA_SUCCESS;
    if (atomic_load_explicit(&me->card[card].executed, memory_order_relaxed) >= position) {
        atomic_store_explicit(&e->at, sim_now(), memory_order_relaxed); /* nothing to wait for */
        return CUDA_SUCCESS;
    }
    struct sim_timeline *t = sim_card_lock(card);
    while (lists[card].first && resolve(t, lists[card].first)) {
    }
    if (atomic_load_explicit(&me->card[card].executed, memory_order_relaxed) >= position) {
        atomic_store_explicit(&e->at, t->clock, memory_order_relaxed);
    } else {
        atomic_store_explicit(&e->at, 0, memory_order_relaxed);
        e->position = position;
        link_event(e, card);
    }
    sim_card_unlock(t);
    return CUDA_SUCCESS;
}
PER_THREAD(cuEventRecordWithFlags, (CUevent e, CUstream s, unsigned flags), (e, THREADS(s), flags))
ENTRY cuEventRecord(CUevent e, CUstream handle) { return cuEventRecordWithFlags(e, handle, 0); }
PER_THREAD(cuEventRecord, (CUevent e, CUstream s), (e, THREADS(s)))

/* Tell whether the event is reached; if so, its time is known afterwards. */
static bool reached(struct sim_event *e) {
    if (!pending(e))
        return true;
    bool there = sim_reached(sim_here->process, e->card, e->position);
    if (!there)
        return false;
    struct sim_timeline *t = sim_card_lock(e->card);
    there = !pending(e) || resolve(t, e);
    sim_card_unlock(t);
    return there;
}

ENTRY cuEventQuery(CUevent e) {
    EVENT(e);
    TROUBLE(SIM_EVENT_QUERY);
    CUresult forbidden = sim_capture_forbids();
    if (forbidden || e->captured)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return reached(e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

ENTRY cuEventSynchronize(CUevent e) {
    EVENT(e);
    TROUBLE(SIM_SYNC);
    CUresult forbidden = sim_capture_forbids();
    if (forbidden || e->captured)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (pending(e)) {
        sim_await(sim_here->process, e->card, e->position);
        reached(e);
    }
    sim_pools_synchronised();
    return CUDA_SUCCESS;
}

ENTRY cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
    EVENT(a);
    EVENT(b);
    if (!ms)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_EVENT_QUERY);
    if ((a->flags | b->flags) & 2) /* made without timing */
        return CUDA_ERROR_INVALID_HANDLE;
    if (!reached(a) || !reached(b))
        return CUDA_ERROR_NOT_READY;
    if (!a->at || !b->at) /* never recorded */
        return CUDA_ERROR_INVALID_HANDLE;
    *ms = (float)((double)(int64_t)(b->at - a->at) / 1e6);
    return CUDA_SUCCESS;
}
SAME(cuEventElapsedTime_v2, cuEventElapsedTime);

/* On one card there is nothing to do: what is submitted later runs later. Between cards the caller waits
 * in the stream's place, since nobody knows beforehand when the other card will be so far. */
ENTRY cuStreamWaitEvent(CUstream handle, CUevent e, unsigned flags) {
    STREAM(s, handle);
    EVENT(e);
    unsigned card = sim_stream_card(s, context_);
    if (s->capture == 0 && pending(e)) {
        if (e->card != card)
            sim_await(sim_here->process, e->card, e->position);
        else if (atomic_load(&s->end) < e->position)
            atomic_store(&s->end, e->position);
    }
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags), (THREADS(s), e, flags))
