/*
 * timeline.h - the modelled time of the cards.
 *
 * Nobody serves a card: whoever looks at it, under the card's robust lock, works out what it has run
 * until now. That is a pure function of what was submitted when, so it does not matter who looks or how
 * often. A process's work on a card is one queue in the order of submission, whatever the streams; a
 * *position* is a length of work from its beginning. `submitted` and `executed` are positions.
 *
 * Between processes a card either serves in the order of submission over all of them, or alternates
 * between those that have work, in slices (`slice_ns`), as a real card does without MPS.
 *
 * A card can be held: it takes work and runs none, so that a test queues things at its leisure and yet
 * knows to the nanosecond what follows what.
 *
 * The work of a process that was killed goes when somebody notices, within SIM_LOOK_NS where somebody
 * waits; what has run by then has run.
 */
#ifndef SIM_TIMELINE_H
#define SIM_TIMELINE_H

#include "config.h"
#include <pthread.h>
#include <stdatomic.h>

#define SIM_PROCESSES 2048
#define SIM_ITEMS 2048
#define SIM_SAMPLES 512
#define SIM_ENDED 256
#define SIM_TRACKS 128
#define SIM_TURNS 512
#define SIM_LOOK_NS 5000000
#define SIM_WINDOW_NS UINT64_C(166666667) /* the shortest sampling period that NVML documents: 1/6 s */

typedef _Atomic uint64_t sim_word;
struct sim_process;
struct sim_state;

/* a set of process places; bit i of `any` tells that word i is not 0 */
struct sim_places {
    uint64_t any;
    uint64_t word[SIM_PROCESSES / 64];
};

/* what one process ran in one window of NVML's sampling */
struct sim_sample {
    uint64_t at; /* end of the window, CLOCK_MONOTONIC ns */
    uint64_t owner;
    uint64_t ns;
};

/* One card. All but the lock is plain memory that only the lock's holder touches. */
struct sim_timeline {
    pthread_mutex_t lock; /* robust, shared; taken after, never before, the lock of the totals */
    uint64_t clock;       /* CLOCK_MONOTONIC ns up to which all is worked out */
    uint64_t busy;        /* ns that the card has worked by then */
    uint64_t current, turn_end;
    uint64_t first, past; /* items: the oldest, and one past the newest, both modulo SIM_ITEMS */
    uint64_t window_end;
    uint64_t samples, ended; /* how many were ever written */
    struct {                 /* a step's words before it: a process killed within is taken back */
        uint64_t valid, place, executed, clock, busy, first, ns;
    } undo;
    struct sim_places queued; /* places with work that has not run */
    struct sim_places ran;    /* places that ran in this window */
    struct {
        uint64_t place, ns;
    } item[SIM_ITEMS]; /* in the order of submission, neighbours of one process joined */
    struct sim_sample sample[SIM_SAMPLES];
    struct {
        uint64_t owner, ns;
    } gone[SIM_ENDED]; /* what processes that ended had executed */
};

/* When a process ran: position `from` at time `at`, and on until the next turn's position. */
struct sim_track {
    sim_word user; /* place << 8 | card, plus 1; 0 = free */
    uint64_t turns;
    struct {
        uint64_t from, at;
    } turn[SIM_TURNS];
};

/* what NVML says about utilisation; set from outside at any moment */
struct sim_habit {
    sim_word mode;     /* enum sim_mode */
    sim_word until_ns; /* CLOCK_MONOTONIC ns at which it ends; 0 = never */
    sim_word delay_ns; /* how late samples are */
};
enum sim_mode { SIM_NORMAL, SIM_SILENT, SIM_UNSUPPORTED };

uint64_t sim_now(void);
/* Sleep until the monotonic clock reads `when`; the last of it is waited for awake. */
void sim_wait_until(uint64_t when);

/* Make the timelines of a state that is all zero; false when this system has no robust mutexes. */
bool sim_timelines_start(struct sim_state *state);
bool sim_lock_init(pthread_mutex_t *lock);

/* Take a card's lock; all is worked out until now, which is the clock of the result. */
struct sim_timeline *sim_card_lock(unsigned card);
void sim_card_unlock(struct sim_timeline *t);
/* From now on let a card stand still, or go on. */
void sim_card_hold(unsigned card, bool still);

/* Put work at the end of a process's queue; returns the position at which it ends. */
uint64_t sim_submit(struct sim_process *process, unsigned card, uint64_t ns);
/* When a position was reached, or 0 if it was not yet. Under the card's lock. */
uint64_t sim_passed(const struct sim_timeline *t, const struct sim_process *process, unsigned card,
                    uint64_t position);
/* Wait until a position is reached. */
void sim_await(struct sim_process *process, unsigned card, uint64_t position);
/* Tell whether a position is reached, noticing now and then who has died. */
bool sim_reached(struct sim_process *process, unsigned card, uint64_t position);
/* The process has ended: what it has queued goes. Under the lock of the totals. */
void sim_timelines_drop(struct sim_process *process);

/* ---- samples (samples.c); under the card's lock ------------------------------------------------- */

/* The window is over: write a sample of each process that ran in it. */
void sim_window_close(struct sim_timeline *t, unsigned card);
void sim_sample_write(struct sim_timeline *t, uint64_t owner, uint64_t ns);
/* End of the newest window that may be shown; what NVML's habit makes of it: 0 ok, else NVML's code. */
int sim_window_shown(const struct sim_timeline *t, uint64_t *end);

#endif
