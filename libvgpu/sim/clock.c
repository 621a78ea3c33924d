/* clock.c - time, and sleeping until it is reached. */
#define _GNU_SOURCE
#include "timeline.h"
#include <errno.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)
#define SPIN_NS 50000 /* a sleep ends about this much late: the rest is waited for awake */

uint64_t sim_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
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
