#include "core/account.h"
#include "core/register.h"

enum verdict { FITS, FULL, IN_THE_WAY };

/* OWN: bytes that this caller has announced itself (0 when it only looks). */
static enum verdict verdict(struct gaia_process *self, unsigned card, uint64_t bytes, uint64_t own) {
    struct gaia_view view;
    gaia_look(self->limits, self->usage, (uint64_t)self->index + 1, card, &view);
    if (gaia_sum(view.settled, bytes) > view.limit)
        return FULL;
    uint64_t others = view.pending >= own ? view.pending - own : 0;
    return gaia_sum(gaia_sum(view.settled, bytes), others) <= view.limit ? FITS : IN_THE_WAY;
}

/* Whoever has the lowest place keeps its announcement; all others take theirs back. So of any number of
 * racers one always comes through, and a race is never lost by everybody. */
static bool lower_place_announces(struct gaia_process *self, unsigned card) {
    for (uint64_t i = 0; i < self->index; i++)
        if (gaia_read(&self->usage->process[i].card[card].pending) != 0)
            return true;
    return false;
}

/* First give the core away, then sleep: 20 us, doubling to 1 ms. A driver's call takes that long. */
static void wait_a_little(unsigned step) {
    if (step < 16)
        sched_yield();
    else
        gaia_prim_sleep(UINT64_C(20000) << (step < 22 ? step - 16 : 6));
}

static bool wait_for_turn(struct gaia_process *self, uint64_t deadline) {
    for (unsigned step = 0; !gaia_lock_try(&self->waiting); step++) {
        if (gaia_prim_now() > deadline)
            return false;
        wait_a_little(step);
    }
    return true;
}

struct wait {
    uint64_t start, swept_ns;
    unsigned step;
    bool swept; /* since the last look */
};

/* Announcements of the dead go with their places. Often enough that a killed racer costs milliseconds. */
static void sweep_now_and_then(struct gaia_process *self, struct wait *wait) {
    uint64_t now = gaia_prim_now(), last = wait->swept_ns ? wait->swept_ns : wait->start;
    if (now - last < (wait->swept_ns ? UINT64_C(50000000) : UINT64_C(2000000)))
        return;
    gaia_sweep(self->usage, &self->identity);
    wait->swept_ns = gaia_prim_now();
}

/* Without an announcement out: until there seems to be room, or surely none, or it takes too long. */
static void stand_aside(struct gaia_process *self, unsigned card, uint64_t bytes, struct wait *wait,
                        uint64_t deadline) {
    while (verdict(self, card, bytes, 0) == IN_THE_WAY && gaia_prim_now() < deadline) {
        wait_a_little(wait->step++);
        sweep_now_and_then(self, wait);
    }
}

bool gaia_claim_slow(struct gaia_process *self, struct gaia_usage_process *place, unsigned card,
                     uint64_t bytes) {
    gaia_word *pending = &place->card[card].pending;
    struct wait wait = {.start = gaia_prim_now()};
    uint64_t deadline = wait.start + GAIA_WAIT_NS;
    gaia_withdraw(pending, bytes);
    /* Threads of one process share one announcement word, so the rule of the lowest place cannot tell
     * them apart: they wait one after the other, holding no announcement while they queue. */
    if (!wait_for_turn(self, deadline))
        return false;
    gaia_announce(pending, bytes);
    for (;;) {
        enum verdict now = verdict(self, card, bytes, bytes);
        bool late = gaia_prim_now() > deadline;
        if (now == FITS)
            break;
        if (now == FULL || late) {
            gaia_withdraw(pending, bytes);
            if (wait.swept) {
                gaia_lock_drop(&self->waiting);
                return false;
            }
            gaia_sweep(self->usage, &self->identity); /* once, before the answer is no */
            wait.swept = true;
            gaia_announce(pending, bytes);
        } else if (lower_place_announces(self, card)) {
            gaia_withdraw(pending, bytes);
            stand_aside(self, card, bytes, &wait, deadline);
            gaia_announce(pending, bytes);
        } else {
            wait_a_little(wait.step++);
            sweep_now_and_then(self, &wait);
        }
    }
    gaia_lock_drop(&self->waiting);
    return true;
}
