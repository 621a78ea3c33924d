/* meter.h - limiting GPU time. docs/design/compute.md tells the whole of it.
 *
 * A launch that holds a credit goes at once. Any other asks: it waits while the slot's bucket is in debt,
 * pays for itself at what such launches cost and for some credits, and puts events ("markers") on its
 * stream. What lies between two markers is measured when the second is reached, and the difference to
 * what was charged in advance settled. A watcher thread puts a marker behind work that nobody else
 * closes, and takes unused credits back, every millisecond while there is anything to watch.
 *
 * Nothing here ever fails a call: without events a stream is watched by asking whether it is idle, and
 * without a valid page the last known rate stands. */
#ifndef GAIA_METER_H
#define GAIA_METER_H

#include "cuda/hook.h"

/* One launch, from asking to the driver's answer. */
struct gaia_work {
    gaia_cu_object stream;
    bool ptsz;     /* called by the per-thread name: stream 0 is the calling thread's */
    uint64_t kind; /* gaia_kernel_kind or gaia_graph_kind */
    bool graph;
    /* between gaia_work_ask and gaia_work_done */
    struct gaia_process *self;
    struct gaia_lane *lane;
    struct gaia_usage_card *words;
    uint64_t cost, credits; /* the latter as in struct gaia_lane */
    uint64_t began_ns;      /* host time of the marker that begins the stretch, on an idle stream; 0 = none */
    uint64_t call_ns;       /* when the driver was called */
    bool close;
};

/* Wait until the launch may go and pay for it. Afterwards the driver is called in any case. */
void gaia_work_ask(struct gaia_work *work);
/* The driver has answered with ERROR. */
void gaia_work_done(struct gaia_work *work, int error);

/* Whether no card of the slot is metered: then a launch costs these loads and no more. */
static inline bool gaia_gate_open(struct gaia_process *self) {
    /* Acquire: the value belongs to the gate. The gate's own word is the agent's `sequence`, which changes
     * with every group that it writes: any change leads to a closer look. */
    const gaia_word *gate = atomic_load_explicit(&self->meter.gate, memory_order_acquire);
    return __builtin_expect(gate != NULL, 1) &&
           gaia_peek(gate) == atomic_load_explicit(&self->meter.gate_value, memory_order_relaxed);
}

static inline unsigned gaia_lane_home(uint64_t tag) {
    return (unsigned)((tag * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % GAIA_LANES;
}

/* The legacy default stream is one per context. */
static inline uint64_t gaia_lane_tag(struct gaia_process *self, gaia_cu_object stream, bool ptsz) {
    uint64_t tag = (uint64_t)(uintptr_t)stream;
    if (__builtin_expect(tag > GAIA_CU_STREAM_PER_THREAD, 1))
        return tag;
    if (tag == GAIA_CU_STREAM_PER_THREAD || (ptsz && tag == 0) ||
        atomic_load_explicit(&self->meter.several, memory_order_relaxed))
        return 0; /* found out under the lock */
    return GAIA_CU_STREAM_LEGACY;
}

/* May this launch go without being looked at? */
static inline bool gaia_unmetered(void) {
    struct gaia_process *self = gaia_process_known();
    return __builtin_expect(self != NULL, 1) && gaia_gate_open(self);
}

/* What a launch costs hangs on the kernel and its grid: two kinds of launches in one loop are told apart
 * without asking. Never 0. */
static inline uint64_t gaia_kernel_kind(gaia_cu_object function, uint64_t x, uint64_t y, uint64_t z) {
    return ((uint64_t)(uintptr_t)function * UINT64_C(0x9e3779b97f4a7c15) + x * UINT64_C(0xbf58476d1ce4e5b9) +
            y * UINT64_C(0x94d049bb133111eb) + z * UINT64_C(0xd6e8feb86659fd93)) |
           1;
}
static inline uint64_t gaia_graph_kind(gaia_cu_object graph) { return gaia_kernel_kind(graph, 0, 0, 0); }

static inline struct gaia_meter_kind *gaia_kind_at(struct gaia_meter *meter, uint64_t kind) {
    return &meter->kind[kind >> 52 & (GAIA_KINDS - 1)];
}
static inline bool gaia_kind_is(uint64_t word, uint64_t kind) { return (word ^ kind) <= GAIA_KIND_COST; }

/* What a launch went on without asking. */
struct gaia_credit {
    struct gaia_lane *lane; /* NULL: it must ask */
    uint64_t amount;
};

static inline struct gaia_credit gaia_take_credit(struct gaia_process *self, gaia_cu_object stream, bool ptsz,
                                                  uint64_t kind) {
    const struct gaia_credit none = {NULL, 0};
    uint64_t tag = gaia_lane_tag(self, stream, ptsz);
    struct gaia_lane *lane = &self->meter.lane[gaia_lane_home(tag)];
    /* Relaxed: a credit stands on its own. One taken from a lane that has just changed hands is one launch
     * that another stream has paid for, and a cost that has just changed is as good as the one before. */
    uint64_t word = atomic_load_explicit(&gaia_kind_at(&self->meter, kind)->word, memory_order_relaxed);
    uint64_t cost = word & GAIA_KIND_COST;
    if (__builtin_expect(!gaia_kind_is(word, kind), 0)) {
        if (word == 0) /* a kind that was never seen is measured first */
            return none;
        cost = atomic_load_explicit(&lane->price, memory_order_relaxed);
    }
    if (__builtin_expect(atomic_load_explicit(&lane->tag, memory_order_relaxed) != tag || tag == 0, 0))
        return none;
    uint64_t left = atomic_load_explicit(&lane->credits, memory_order_relaxed);
    do
        if (GAIA_CREDIT_LAUNCHES(left) == 0 || GAIA_CREDIT_NS(left) < cost)
            return none;
    /* Acquire: whoever gave the credit had found the driver. */
    while (__builtin_expect(
        !atomic_compare_exchange_weak_explicit(&lane->credits, &left, left - GAIA_CREDIT(cost, 1),
                                               memory_order_acquire, memory_order_relaxed),
        0));
    return (struct gaia_credit){lane, GAIA_CREDIT(cost, 1)};
}

static inline void gaia_credit_failed(struct gaia_credit credit) {
    atomic_fetch_add_explicit(&credit.lane->failed, credit.amount, memory_order_relaxed);
}

/* Before a stream, or a context with all its streams (both NULL-safe), is destroyed. */
void gaia_meter_stream_ends(gaia_cu_object stream);
void gaia_meter_context_ends(gaia_cu_object context);
/* A stream capture is about to begin, or has ended: what is launched into one is no work. One that ends
 * with its stream is counted for good, which costs a question per launch. */
void gaia_meter_capture(bool begins);

#define GAIA_UNTRIED_NS UINT64_C(1000000000) /* after a failure of a stream's events */

/* ---- lanes and markers (lane.c, settle.c), with meter->lock held ------------------------------- */

struct gaia_lane *gaia_lane_of(struct gaia_process *self, const struct gaia_work *work, uint64_t tag,
                               gaia_cu_object context, unsigned card);
/* Take what is left of the credits back; what was used belongs to the open stretch. */
void gaia_lane_collect(struct gaia_process *self, struct gaia_lane *lane, uint64_t now);
/* End the open stretch (WORK) or begin a new one after a pause. */
void gaia_lane_mark(const struct gaia_driver *driver, struct gaia_lane *lane, bool work);
/* The marker put last. */
static inline struct gaia_marker *gaia_lane_newest(struct gaia_lane *lane) {
    return &lane->marker[(lane->next - 1) % GAIA_MARKERS];
}
bool gaia_lane_pending(const struct gaia_lane *lane);
bool gaia_lane_idle(const struct gaia_lane *lane);
/* Give up measuring what is under way: it stays charged as estimated. EVENTS are destroyed too. */
void gaia_lane_drop(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                    bool events);

/* Settle what the stream has reached. HERE: the calling thread may name the stream to the driver. */
void gaia_lane_settle(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                      bool here, uint64_t now);
/* Work that CHARGED was taken for has been measured, or was never done. */
static inline void gaia_card_landed(struct gaia_meter_card *card, uint64_t charged) {
    card->in_flight -= charged < card->in_flight ? charged : card->in_flight;
}
/* Whether work of CARD takes much longer than it was charged for. */
bool gaia_card_late(const struct gaia_meter *meter, unsigned card, uint64_t now);
/* What is known of a launch's cost, GPU ns; *known: of this kind of launch. */
uint64_t gaia_cost(struct gaia_meter *meter, unsigned card, const struct gaia_work *work, bool *known);
/* Use GPU_NS of the bucket, or give them back when negative. */
void gaia_card_use(struct gaia_process *self, unsigned card, uint64_t now, int64_t gpu_ns);
struct gaia_usage_card *gaia_card_words(struct gaia_process *self, unsigned card);

/* ---- the watcher (watch.c), with meter->lock held ----------------------------------------------- */

/* Have the watcher running and awake. False: there can be none, so nobody would close a stretch. */
bool gaia_watch(struct gaia_process *self);

#endif
