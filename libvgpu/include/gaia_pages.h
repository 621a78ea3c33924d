/*
 * gaia_pages.h - the two pages that a slot's processes and its agent share.
 *
 *   limits  written by the agent only, mapped read-only by the slot's processes
 *   usage   written by the slot's processes only, read by the agent with pread
 *
 * One writer per page; each value is one naturally atomic 64-bit word, so a writer killed between
 * two words leaves every word whole. Groups that must be seen together are bracketed by `sequence`
 * (odd while the agent writes); a reader tries GAIA_SEQUENCE_TRIES times and then takes the words
 * one by one, so that a killed writer blocks nobody.
 *
 * No word means "no limit" by being 0: a page of zeros grants nothing.
 * Offsets are part of the contract between versions; a change needs a new GAIA_LAYOUT_VERSION.
 */
#ifndef GAIA_PAGES_H
#define GAIA_PAGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GAIA_LIMITS_MAGIC UINT64_C(0x314d494c41494147) /* "GAIALIM1" */
#define GAIA_USAGE_MAGIC UINT64_C(0x3147535541494147)  /* "GAIAUSG1" */
#define GAIA_LAYOUT_VERSION 1
#define GAIA_CARDS 16       /* cards of one slot */
#define GAIA_PROCESSES 1024 /* processes of one slot */
#define GAIA_SEEN 16        /* words that tell which of a card's recent time is paid */
#define GAIA_SEQUENCE_TRIES 3

typedef _Atomic uint64_t gaia_word;

/* owner word of a process: pid and start time in one word, so that claiming a place is one
 * compare-and-swap. Field 22 of /proc/PID/stat, clock ticks since boot, fits 42 bits. 0 = free. */
#define GAIA_OWNER(pid, start) (((uint64_t)(pid) << 42) | ((uint64_t)(start) & ((UINT64_C(1) << 42) - 1)))
#define GAIA_OWNER_PID(owner) ((uint32_t)((owner) >> 42))
#define GAIA_OWNER_START(owner) ((owner) & ((UINT64_C(1) << 42) - 1))

enum gaia_compute { GAIA_COMPUTE_HARD = 1, GAIA_COMPUTE_ELASTIC = 2 };
enum gaia_report { GAIA_REPORT_LIMIT = 1, GAIA_REPORT_CEILING = 2 };
enum gaia_slot_state { GAIA_SLOT_APPLIED = 1, GAIA_SLOT_DRAINING = 2, GAIA_SLOT_RELEASING = 3 };

/* ---- limits ------------------------------------------------------------------------------- */

struct gaia_limits_card {
    gaia_word uuid[2];        /* the 16 bytes of CUuuid, in memory order; both 0 = no card here */
    gaia_word memory_limit;   /* bytes in force; 0 = nothing may be allocated */
    gaia_word memory_ceiling; /* bytes it may grow to */
    gaia_word memory_report;  /* enum gaia_report: which of the two is "total" */
    gaia_word context_bytes;  /* charged for a process's context until the agent has measured it */
    gaia_word rate_ppm;       /* compute rate in force, millionths of the card's time */
    gaia_word guarantee_ppm;  /* never less than this */
    gaia_word ceiling_ppm;    /* never more than this */
    gaia_word compute_mode;   /* enum gaia_compute */
    gaia_word burst_ns;       /* depth of the bucket of GPU time; 0 = 50 ms at the rate in force */
    gaia_word futex;          /* low half: changes with every store that waiters must see */
    gaia_word reserved[4];
};

/* what the agent adds for one process: device memory that no hook sees (context, modules, local
 * memory), as NVML's figure less what the process has claimed. Counts only while `owner` equals the
 * owner word of the same index in `usage`; before that, context_bytes counts for every card on which
 * the process has a context. */
struct gaia_limits_process {
    gaia_word owner;
    gaia_word overhead[GAIA_CARDS];
    gaia_word reserved[7];
};

struct gaia_limits {
    gaia_word magic;
    gaia_word layout_version;
    gaia_word size;       /* of this page, bytes */
    gaia_word sequence;   /* odd while the agent writes a group */
    gaia_word generation; /* of the slot in the ledger */
    gaia_word state;      /* enum gaia_slot_state */
    gaia_word boot_id[2];
    gaia_word heartbeat_ns; /* CLOCK_MONOTONIC of the agent's last visit */
    gaia_word card_count;
    char pad0[4096 - 10 * 8];
    struct gaia_limits_card card[GAIA_CARDS];
    char pad1[4096 - GAIA_CARDS * sizeof(struct gaia_limits_card)];
    struct gaia_limits_process process[GAIA_PROCESSES];
};

/* ---- usage -------------------------------------------------------------------------------- */

/* Total on a card = over all process places: pending + used + (agent's overhead, else context).
 * A reader that decides must read `pending` before `used` of each place. */
struct gaia_usage_card {
    gaia_word used;         /* bytes the driver has given */
    gaia_word pending;      /* bytes announced, the driver not yet asked or not yet answered */
    gaia_word context;      /* 1 while the process has a context on this card */
    gaia_word busy_ns;      /* GPU time measured and paid */
    gaia_word throttled_ns; /* time launches have waited */
    gaia_word launches;     /* counted in batches */
    gaia_word returns;      /* times that bytes were given back: two equal readings around a driver's
                               figure, with `used` equal too, mean that nothing came and went unseen */
    gaia_word blind_ns;     /* CLOCK_MONOTONIC: when a stream was last watched without events, which the
                               driver refused; 0 = never */
};

struct gaia_usage_process {
    gaia_word owner;         /* GAIA_OWNER; 0 = free. The only word that decides whose place it is */
    gaia_word registered_ns; /* CLOCK_MONOTONIC */
    gaia_word library;       /* version of libvgpu, major << 32 | minor << 16 | patch */
    gaia_word reserved[5];
    struct gaia_usage_card card[GAIA_CARDS]; /* same index as in limits */
};

/* What the slot has paid for one card's time, all processes together. One word, so that a process killed
 * at any instruction leaves nothing half done. */
struct gaia_usage_bucket {
    gaia_word paid_until_ns; /* CLOCK_MONOTONIC: GPU time used so far is paid for at the rate in force up
                                to this instant; a launch may go when it has passed */
    gaia_word reserved[7];
};

struct gaia_usage {
    gaia_word magic;
    gaia_word layout_version;
    gaia_word size;
    gaia_word high_water; /* process places ever taken; readers look no further */
    char pad0[1024 - 4 * 8];
    struct gaia_usage_bucket bucket[GAIA_CARDS]; /* same index as in limits */
    gaia_word seen[GAIA_CARDS][GAIA_SEEN];       /* core/seen.h; the same index */
    struct gaia_usage_process process[GAIA_PROCESSES];
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "words must be atomic without a lock");
_Static_assert(sizeof(gaia_word) == 8, "a word is 64 bits");
_Static_assert(sizeof(struct gaia_limits_card) == 128, "layout");
_Static_assert(sizeof(struct gaia_limits_process) == 192, "layout");
_Static_assert(offsetof(struct gaia_limits, card) == 4096, "layout");
_Static_assert(offsetof(struct gaia_limits, process) == 8192, "layout");
_Static_assert(sizeof(struct gaia_limits) == 8192 + 192 * GAIA_PROCESSES, "layout");
_Static_assert(sizeof(struct gaia_usage_card) == 64, "layout");
_Static_assert(sizeof(struct gaia_usage_process) == 64 + 64 * GAIA_CARDS, "layout");
_Static_assert(sizeof(struct gaia_usage_bucket) == 64, "layout");
_Static_assert(offsetof(struct gaia_usage, bucket) == 1024, "layout");
_Static_assert(offsetof(struct gaia_usage, seen) == 2048, "layout");
_Static_assert(offsetof(struct gaia_usage, process) == 4096, "layout");

#endif
