/*
 * state.h - what all processes of one simulated machine share: the state file.
 *
 * The words of each process are the truth; a card's `used` is their sum. Both change under one robust
 * mutex, so a process killed between the two leaves the mutex marked, and the next owner sums again.
 * Reads of single words need no lock. The file describes itself (`layout`, JSON text), so that
 * readers outside this folder know no offset.
 */
#ifndef SIM_STATE_H
#define SIM_STATE_H

#include "config.h"
#include "timeline.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAGIC UINT64_C(0x314d495341494147) /* "GAIASIM1" */
#define SIM_LAYOUT_VERSION 4
#define SIM_PLACE_BYTE 1 /* of the state file: from here on one for each process place, see process.c */

/* families of entry points, for fault injection; the names are in `sim_family_name` */
enum sim_family {
    SIM_ALLOC,
    SIM_FREE,
    SIM_POOL,
    SIM_VMM,
    SIM_CONTEXT,
    SIM_INFO,
    SIM_COPY,
    SIM_LAUNCH,
    SIM_SYNC,
    SIM_STREAM,
    SIM_MODULE,
    SIM_NVML,
    SIM_EVENT_CREATE,
    SIM_EVENT_RECORD,
    SIM_EVENT_QUERY,
    SIM_FAMILIES
};
extern const char *const sim_family_name[SIM_FAMILIES];

struct sim_trouble {
    sim_word fault; /* calls that still fail << 32 | the code they fail with */
    sim_word delay; /* ns that each call of the family takes; taken back, it ends for those within, too */
};

#define SIM_XIDS 5

struct sim_card_state {
    sim_word used; /* sum over the processes */
    sim_word peak; /* highest `used` so far */
    sim_word xids; /* how many there were; the newest are in: */
    sim_word xid[SIM_XIDS];
};

struct sim_process_card {
    sim_word used;      /* bytes, contexts included */
    sim_word context;   /* the part of it that contexts take */
    sim_word contexts;  /* how many */
    sim_word launches;  /* how many */
    sim_word submitted; /* card time that it has asked for, ns; changes under the card's lock, as do: */
    sim_word executed;  /* the part of it that has run */
    sim_word window;    /* `executed` at the beginning of the sampling window */
    sim_word track;     /* index of its sim_track, plus 1 */
};

struct sim_process {
    sim_word owner; /* GAIA_OWNER(pid, start time); 0 = free */
    sim_word image; /* start of the stack: another one after exec, which frees what the pid had */
    sim_word space; /* its pid namespace; 0 = not known */
    sim_word reserved[5];
    struct sim_process_card card[SIM_CARDS];
};

struct sim_state {
    sim_word magic; /* written last */
    sim_word layout_version;
    sim_word size;
    sim_word config; /* hash of what the cards are */
    char layout[4096 - 4 * 8];
    pthread_mutex_t lock; /* robust, shared */
    char pad0[128 - sizeof(pthread_mutex_t)];
    sim_word high_water; /* process places ever taken */
    sim_word swept_ns;   /* CLOCK_MONOTONIC of the last sweep */
    sim_word slice_ns;   /* how long a card stays with a process; 0 = order of submission */
    sim_word epoch_ns;   /* the day's clock less CLOCK_MONOTONIC when the state was made */
    struct sim_habit habit;
    sim_word held; /* bit i: card i stands still; changes under the card's lock */
    char pad1[128 - 8 * 8];
    struct sim_trouble trouble[16];
    struct sim_card_state card[SIM_CARDS];
    char pad2[8192 - 4096 - 256 - 16 * 16 - SIM_CARDS * sizeof(struct sim_card_state)];
    struct sim_process process[SIM_PROCESSES];
    struct sim_timeline timeline[SIM_CARDS];
    struct sim_track track[SIM_TRACKS];
};
_Static_assert(sizeof(struct sim_trouble[16]) == 256, "layout");
_Static_assert(offsetof(struct sim_state, process) == 8192, "layout");
_Static_assert(SIM_FAMILIES <= 16, "layout");

/* The mapped state; NULL until sim_open() has succeeded once in this process or its parent. */
extern struct sim_state *sim_state;
/* Its file, open as long as it is mapped: closing any descriptor of it would drop this process's locks.
 * -1 where somebody else mapped the state (observe.c). */
extern int sim_state_file;

/* Map the state, making or renewing the file if need be. Returns NULL, else a sentence why not. */
const char *sim_open(void);

/* The lock of the totals. Recovers from an owner that died. */
void sim_lock(void);
void sim_unlock(void);

/* ---- processes (process.c); all but sim_self_* under the lock --------------------------------- */

/* Give back what the dead hold. */
void sim_sweep(void);
/* The same for frequent callers, without the lock: at once for processes that are gone, within some
 * milliseconds for zombies. */
void sim_sweep_lightly(void);
/* The same for those who wait for a card: at most once in SIM_LOOK_NS. */
void sim_sweep_if_due(void);
/* Take a place for this process, or NULL when none is free. */
struct sim_process *sim_process_take(void);
/* Tell the pid of a process as seen from this one's pid namespace; false when it is not seen from here. */
bool sim_process_pid(uint64_t owner, unsigned *pid);
/* Give back all that a place holds; the place stays taken until its process is gone. */
void sim_process_empty(struct sim_process *process);
/* Sum the cards' totals from the words of the processes. */
void sim_totals(void);
/* Tell whether anybody alive is registered. */
bool sim_anybody(const struct sim_state *state);

/* ---- memory (account.c); under the lock -------------------------------------------------------- */

/* Charge n bytes of a card to the process; false when they do not fit even after a sweep. */
bool sim_take(struct sim_process *process, unsigned card, uint64_t n);
void sim_give(struct sim_process *process, unsigned card, uint64_t n);

/* ---- faults (trouble.c) ------------------------------------------------------------------------ */

int sim_trouble_slow(enum sim_family family);

/* The code that this call is to fail with, or 0. Waits when a delay is set. */
static inline int sim_trouble(enum sim_family family) {
    struct sim_trouble *t = &sim_state->trouble[family];
    if (__builtin_expect((atomic_load_explicit(&t->fault, memory_order_relaxed) |
                          atomic_load_explicit(&t->delay, memory_order_relaxed)) == 0,
                         1))
        return 0;
    return sim_trouble_slow(family);
}

/* ---- trace (trace.c) --------------------------------------------------------------------------- */

/* Append a line to the file named by GAIA_SIM_TRACE, if that is set. */
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
