/* process.h - this process in its slot: the mapped pages, its place in `usage`, its table.
 *
 * All of it lies in one mapping that a forked child sees zeroed. A child therefore holds nothing and
 * registers on its own; its parent's CUDA handles are useless to it anyway. Nothing is made before
 * the first call that needs it. */
#ifndef GAIA_PROCESS_H
#define GAIA_PROCESS_H

#include "core/lock.h"
#include "core/meter.h"
#include "core/owner.h"
#include "core/pages.h"
#include "core/table.h"

#define GAIA_DEVICES 64 /* CUDA ordinals whose card is remembered */
#define GAIA_POOLS 256  /* memory pools that are counted one by one */
#define GAIA_RECHECK_NS UINT64_C(10000000)

/* A memory pool that this process has met; charged by what the driver reserves for it. */
struct gaia_pool {
    uint64_t handle; /* 0 = free */
    uint64_t charge; /* part of this process's `used` */
    uint64_t live;   /* sum of the pointers handed out */
    uint8_t card;
    bool counted; /* false: host memory, or another process's pool */
};

struct gaia_process {
    /* Written last (release) when the process is registered; NULL = not registered, or no valid page. */
    _Atomic(struct gaia_usage_process *) place;
    const struct gaia_limits *limits;
    struct gaia_usage *usage;
    uint32_t index;            /* of `place` */
    _Atomic uint64_t asked_ns; /* when the pages were last known to be good, gaia_prim_stamp */
    _Atomic uint8_t card_of_device[GAIA_DEVICES]; /* index + 1; 0 = not yet asked */
    _Atomic uint8_t only_card; /* index + 1 when the driver shows one device: no need to ask which */
    _Atomic bool captured;     /* a stream capture was begun at some time */
    _Atomic uint32_t contexts[GAIA_CARDS];
    _Atomic uint64_t primary[GAIA_DEVICES]; /* times the primary context is retained through us; context.c */
    uint64_t primary_handle[GAIA_DEVICES];
    gaia_lock registering; /* one thread maps pages and takes a place */
    gaia_lock waiting;     /* one thread at a time waits for room with an announcement out */
    gaia_lock pooling;     /* the pool list and everything in it */
    gaia_lock making;      /* context calls: count and driver's state change together */
    struct gaia_pages pages;
    struct gaia_identity identity;
    struct gaia_pool pool[GAIA_POOLS];
    _Atomic uint32_t pools;
    uint64_t pool_step; /* by how much pools were seen to grow at least; 0 = not yet seen */
    _Atomic uint64_t current_pool[GAIA_DEVICES]; /* 0 = ask the driver */
    uint64_t graph_bytes;                        /* allocation nodes put into graphs so far */
    uint64_t graph_charge[GAIA_CARDS];
    struct gaia_table table;
    struct gaia_meter meter;
};

extern _Atomic(struct gaia_process *) gaia_self;

/* Everything below the fast path: map, register, or look whether the pages are still good. NULL when
 * this process may not be given anything. */
struct gaia_process *gaia_process_enter_slow(void);

/* The state even where nothing can be granted: frees must find their entries. NULL only without memory. */
struct gaia_process *gaia_process_state(void);

/* This process, registered, its pages known to be good within the last 10 ms; else NULL.
 * The clock is read on every call because an idle notebook may sit between two calls for hours while
 * somebody truncates a page; it costs less than one of the locked instructions that follow. */
static inline struct gaia_process *gaia_process_enter(void) {
    /* Acquire pairs with the release that published the mapping and the place: their contents first. */
    struct gaia_process *self = atomic_load_explicit(&gaia_self, memory_order_acquire);
    if (__builtin_expect(self != NULL && atomic_load_explicit(&self->place, memory_order_acquire) != NULL,
                         1) &&
        /* Relaxed: a stale value only asks once too often or a few ns too late. */
        gaia_prim_stamp() - atomic_load_explicit(&self->asked_ns, memory_order_relaxed) < GAIA_RECHECK_NS)
        return self;
    return gaia_process_enter_slow();
}

/* Place of the process, or NULL. */
static inline struct gaia_usage_process *gaia_process_place(struct gaia_process *self) {
    return atomic_load_explicit(&self->place, memory_order_acquire);
}

#endif
