/* timeline.c - the modelled time of the cards: one timeline each, served in the order of submission.
 * A real card switches between processes every few milliseconds; this one does not. */
#define _GNU_SOURCE
#include "state.h"
#include <errno.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
#define SPIN_NS 50000 /* a sleep ends about this much late: the rest is waited for awake */

uint64_t sim_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

uint64_t sim_occupy(struct sim_process *process, unsigned card, uint64_t ns) {
    sim_word *idle_at = &sim_state->card[card].idle_at;
    struct sim_process_card *mine = &process->card[card];
    uint64_t now = sim_now(), was = atomic_load(idle_at), end;
    do
        end = (was > now ? was : now) + ns;
    while (!atomic_compare_exchange_weak(idle_at, &was, end));
    atomic_fetch_add(&mine->busy_ns, ns);
    uint64_t last = atomic_load(&mine->end_ns);
    while (last < end && !atomic_compare_exchange_weak(&mine->end_ns, &last, end)) {
    }
    return end;
}

void sim_wait_until(uint64_t when) {
    for (uint64_t now = sim_now(); now < when; now = sim_now()) {
        if (when - now <= SPIN_NS + 10000)
            continue;
        uint64_t wake = when - SPIN_NS;
        struct timespec t = {(time_t)(wake / SECOND), (long)(wake % SECOND)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
        }
    }
}

uint64_t sim_done_ns(const struct sim_process_card *card, uint64_t now) {
    uint64_t busy = atomic_load(&card->busy_ns), end = atomic_load(&card->end_ns);
    uint64_t left = end > now ? end - now : 0;
    return busy > left ? busy - left : 0;
}
