/* observe.c - for whoever tests a simulation: the truth about the cards' time, at one instant. */
#include "gaia_pages.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

EXPORT int64_t gaia_sim_observe(struct sim_state *state, unsigned card, uint64_t *out, uint64_t room);
EXPORT int gaia_sim_hold(struct sim_state *state, unsigned card, int still);

static bool readable(const struct sim_state *state, unsigned card) {
    return atomic_load(&state->layout_version) == SIM_LAYOUT_VERSION &&
           atomic_load(&state->size) == sizeof *state && card < SIM_CARDS;
}

/* Writes three words (instant, ns that the card has worked by then, how many processes follow), then
 * four per process: owner, ns executed, ns queued, 1 while it lives. Returns how many words there are,
 * also beyond `room`; -1 for a state of another layout. The caller has mapped the state. */
int64_t gaia_sim_observe(struct sim_state *state, unsigned card, uint64_t *out, uint64_t room) {
    uint64_t n = 3, places;
    if (!readable(state, card) || room < n)
        return -1;
    pthread_mutex_lock(&one);
    sim_state = state; /* a process may look at several simulations, one after the other */
    sim_lock();
    sim_sweep();
    sim_unlock();
    struct sim_timeline *t = sim_card_lock(card);
    out[0] = t->clock;
    out[1] = t->busy;
    places = atomic_load(&state->high_water);
    for (uint64_t i = 0; i < places && i < SIM_PROCESSES; i++) {
        const struct sim_process *p = &state->process[i];
        uint64_t owner = atomic_load(&p->owner), submitted = atomic_load(&p->card[card].submitted);
        if (!owner || !submitted)
            continue;
        uint64_t executed = atomic_load(&p->card[card].executed);
        const uint64_t row[] = {owner, executed, submitted - executed, 1};
        for (unsigned k = 0; k < 4; k++, n++)
            if (n < room)
                out[n] = row[k];
    }
    for (uint64_t i = t->ended > SIM_ENDED ? t->ended - SIM_ENDED : 0; i < t->ended; i++) {
        const uint64_t row[] = {t->gone[i % SIM_ENDED].owner, t->gone[i % SIM_ENDED].ns, 0, 0};
        for (unsigned k = 0; k < 4; k++, n++)
            if (n < room)
                out[n] = row[k];
    }
    out[2] = (n - 3) / 4;
    sim_card_unlock(t);
    pthread_mutex_unlock(&one);
    return (int64_t)n;
}

/* Lets a card stand still, or go on; see timeline.h. Returns 0, or -1 for a state of another layout. */
int gaia_sim_hold(struct sim_state *state, unsigned card, int still) {
    if (!readable(state, card))
        return -1;
    pthread_mutex_lock(&one);
    sim_state = state;
    sim_card_hold(card, still != 0);
    pthread_mutex_unlock(&one);
    return 0;
}
