/* meter.h - what one process knows about the GPU time of its own work. Types only; cuda/meter.h says how
 * it is measured. Lies in the page that a forked child sees zeroed: a child meters from nothing. */
#ifndef GAIA_METER_STATE_H
#define GAIA_METER_STATE_H

#include "core/bucket.h"
#include "core/lock.h"
#include "core/seen.h"

#define GAIA_LANES 64   /* streams in use at one time that are measured one by one; a power of two */
#define GAIA_MARKERS 32 /* events in flight per stream; a power of two */
#define GAIA_MOST_CREDITS 4096
#define GAIA_KINDS 4096 /* kinds of launches whose cost is remembered; a power of two */

/* Credits of a lane, in one word so that one exchange takes both: GPU ns above, launches below. */
#define GAIA_CREDIT_SHIFT 20
#define GAIA_CREDIT(ns, launches) ((uint64_t)(ns) << GAIA_CREDIT_SHIFT | (launches))
#define GAIA_CREDIT_NS(credit) ((credit) >> GAIA_CREDIT_SHIFT)
#define GAIA_CREDIT_LAUNCHES(credit) ((credit) & ((UINT64_C(1) << GAIA_CREDIT_SHIFT) - 1))

/* An event recorded on a stream, and the stretch of work that ends with it. */
struct gaia_marker {
    void *event;
    uint64_t host_ns;  /* just before it was recorded */
    uint64_t after_ns; /* just after */
    uint64_t lag_ns;   /* the stretch began on an idle stream, and its launch came so much later */
    uint64_t launches; /* in the stretch */
    uint64_t charged;  /* GPU ns taken from the bucket for them in advance */
    uint64_t kind;     /* the stretch is one launch, and of this kind; else 0 */
    bool graph;        /* and that is a graph */
    bool work;         /* false: nothing ran in the stretch, it only begins the next one */
    bool exact;        /* the stream never ran dry in the stretch */
};

/* One stream of one context. Only `tag`, `credits` and `failed` are touched without the lock. */
struct gaia_lane {
    _Atomic uint64_t tag;     /* which stream; 0 = nobody's, GAIA_LANE_CLOSED = a stream that is no more */
    _Atomic uint64_t credits; /* launches that may go without asking, and the GPU ns they may cost */
    _Atomic uint64_t price;   /* what a launch of a kind that was pushed out of the table costs */
    _Atomic uint64_t failed;  /* credits whose launch the driver refused */
    uint64_t granted;         /* what `credits` began with */
    uint32_t users;           /* launches that wait or are under way: the lane must stay */
    uint32_t submitting;      /* those the driver has been or is about to be asked for */
    void *stream, *context;
    bool per_thread;   /* the stream of the calling thread: no other thread can name it */
    bool stream_known; /* false: the stream has been destroyed */
    bool ptsz;         /* recorded through the per-thread variants */
    uint8_t card;
    uint64_t open_launches, open_charged, open_kind; /* since the last marker */
    bool open_graph;
    uint64_t blind_ns;    /* no event could be had: host time since which work is under way; 0 = none */
    uint64_t blind_until; /* host time until which events are not tried again */
    uint64_t moved_ns;    /* host time of the last progress */
    uint64_t unready_ns;  /* host time at which the marker after it was not yet reached */
    uint64_t at_ns;       /* host time at which marker `first` was reached, as far as known */
    uint32_t first, next; /* markers: `first` is the newest reached one, `next` the one to record */
    struct gaia_marker marker[GAIA_MARKERS];
} __attribute__((aligned(64)));
#define GAIA_LANE_CLOSED UINT64_MAX

/* What one kind of launch costs: a kernel with its grid, or a graph. Only `word` is read without the lock,
 * in one load: the upper bits of the kind, and the cost as far as it fits below. 0 = nothing is known. */
#define GAIA_KIND_COST ((UINT64_C(1) << 24) - 1)
struct gaia_meter_kind {
    _Atomic uint64_t word;
    uint64_t cost;  /* GPU ns, moving mean */
    bool surprised; /* the last one measured cost much more than the mean */
};

/* What is known of one card of the slot. */
struct gaia_meter_card {
    struct gaia_pace pace; /* as last read: in force while no page can be read */
    gaia_word paid;        /* stands in for the slot's word meanwhile */
    uint64_t cost;         /* GPU ns of a kernel of any kind, moving mean; 0 = never measured */
    uint64_t trust;        /* credits that may be given at once */
    uint64_t beside, new;  /* GPU ns of short stretches beside others', and what of them was not yet paid */
    uint64_t in_flight;    /* GPU ns charged for work that has not been measured yet */
};

enum gaia_watch { GAIA_WATCH_NONE, GAIA_WATCH_RUNS, GAIA_WATCH_FAILED };

struct gaia_meter {
    /* While *gate reads gate_value no card is metered; NULL = ask. In a line of their own, read by every
     * launch and written hardly ever. */
    _Atomic(const gaia_word *) gate;
    _Atomic uint64_t gate_value;
    _Atomic bool several;      /* more than one context launches: its default stream has a lane of its own */
    _Atomic bool ended;        /* the process is on its way out: the driver is left alone */
    _Atomic uint32_t captures; /* stream captures begun and not yet ended */
    char pad[64];
    gaia_lock lock; /* all that follows */
    enum gaia_watch watch;
    gaia_word bell; /* the watcher sleeps on it when there is nothing to watch */
    _Atomic bool asleep;
    uint64_t dice;
    void *first_context;
    uint8_t card_of_device[64]; /* index + 1 as last known, also when there is no page */
    struct gaia_meter_card card[GAIA_CARDS];
    struct gaia_meter_kind kind[GAIA_KINDS];
    struct gaia_lane lane[GAIA_LANES];
};

#endif
