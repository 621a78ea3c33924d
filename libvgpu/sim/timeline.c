/* timeline.c - works out what a card has run: by the order of submission, or in turns. See timeline.h. */
#define _GNU_SOURCE
#include "gaia_pages.h"
#include "places.h"
#include "state.h"
#include <errno.h>
#include <string.h>
#include <time.h>

#define BARRIER() atomic_signal_fence(memory_order_seq_cst)
#define NOBODY SIM_PROCESSES

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t get(const sim_word *word) { return atomic_load_explicit(word, memory_order_relaxed); }
static void set(sim_word *word, uint64_t n) { atomic_store_explicit(word, n, memory_order_relaxed); }

static struct sim_process_card *at(uint64_t place, unsigned card) {
    return &sim_state->process[place].card[card];
}
static uint64_t place_of(const struct sim_process *process) {
    return (uint64_t)(process - sim_state->process);
}
static uint64_t waiting(const struct sim_process_card *p) { return get(&p->submitted) - get(&p->executed); }
static bool alternates(void) { return get(&sim_state->slice_ns) != 0; }
static bool held(unsigned card) { return get(&sim_state->held) >> card & 1; }

/* ---- one step ------------------------------------------------------------------------------------ */

/* Whose work the card does at its clock. In turns: whoever is at it until the slice ends, then the next
 * place that has work. */
static uint64_t choose(struct sim_timeline *t) {
    if (t->queued.any == 0)
        return NOBODY;
    if (!alternates()) {
        while (t->item[t->first % SIM_ITEMS].ns == 0)
            t->first++; /* dropped with its process */
        return t->item[t->first % SIM_ITEMS].place;
    }
    if (!places_have(&t->queued, t->current) || t->clock >= t->turn_end) {
        t->current = places_after(&t->queued, t->current);
        t->turn_end = t->clock + get(&sim_state->slice_ns);
    }
    return t->current;
}

static struct sim_track *track_of(const struct sim_process_card *p) {
    uint64_t track = get(&p->track);
    return track ? &sim_state->track[track - 1] : NULL;
}

/* A turn goes on while nothing lies between: then what it says stays right. */
static void turn_note(struct sim_process_card *p, uint64_t now) {
    struct sim_track *track = track_of(p);
    uint64_t executed = get(&p->executed);
    if (!track)
        return;
    if (track->turns) {
        uint64_t last = (track->turns - 1) % SIM_TURNS;
        if (track->turn[last].at + (executed - track->turn[last].from) == now)
            return;
    }
    track->turn[track->turns % SIM_TURNS].from = executed;
    track->turn[track->turns % SIM_TURNS].at = now;
    track->turns++;
}

static void run(struct sim_timeline *t, unsigned card, uint64_t place, uint64_t until) {
    struct sim_process_card *p = at(place, card);
    uint64_t ns = least(waiting(p), until - t->clock), head = t->first % SIM_ITEMS;
    if (!alternates())
        ns = least(ns, t->item[head].ns);
    else if (!places_only(&t->queued, place))
        ns = least(ns, t->turn_end - t->clock);
    t->undo.place = place;
    t->undo.executed = get(&p->executed);
    t->undo.clock = t->clock;
    t->undo.busy = t->busy;
    t->undo.first = t->first;
    t->undo.ns = t->item[head].ns;
    BARRIER();
    t->undo.valid = 1;
    BARRIER();
    turn_note(p, t->clock);
    places_add(&t->ran, place);
    set(&p->executed, get(&p->executed) + ns);
    t->busy += ns;
    t->clock += ns;
    if (!alternates()) {
        t->item[head].ns -= ns;
        if (t->item[head].ns == 0)
            t->first++;
    } else if (t->clock > t->turn_end) { /* alone: its slices followed each other */
        uint64_t slice = get(&sim_state->slice_ns);
        t->turn_end += (t->clock - t->turn_end + slice - 1) / slice * slice;
    }
    if (waiting(p) == 0)
        places_remove(&t->queued, place);
    BARRIER();
    t->undo.valid = 0;
}

static void advance(struct sim_timeline *t, unsigned card, uint64_t now) {
    while (t->clock < now) {
        if (t->clock >= t->window_end) {
            sim_window_close(t, card);
            t->window_end = t->clock / SIM_WINDOW_NS * SIM_WINDOW_NS + SIM_WINDOW_NS;
        }
        uint64_t place = held(card) ? NOBODY : choose(t), until = least(now, t->window_end);
        if (place != NOBODY)
            run(t, card, place, until);
        else
            t->clock = t->ran.any ? until : now;
    }
}

/* ---- the lock --------------------------------------------------------------------------------------- */

/* Whoever held the lock was killed. Its step is taken back; of its queue, the sweep takes care. */
static void recover(struct sim_timeline *t, unsigned card) {
    if (t->undo.valid) {
        set(&at(t->undo.place, card)->executed, t->undo.executed);
        t->clock = t->undo.clock;
        t->busy = t->undo.busy;
        t->first = t->undo.first;
        t->item[t->first % SIM_ITEMS].ns = t->undo.ns;
        BARRIER();
        t->undo.valid = 0;
    }
    /* what the killed one was adding may be in one of two accounts only; the order is what is served */
    for (uint64_t i = 0; i < SIM_PROCESSES && !alternates(); i++)
        set(&at(i, card)->submitted, get(&at(i, card)->executed));
    for (uint64_t k = t->first; k != t->past && !alternates(); k++) {
        struct sim_process_card *p = at(t->item[k % SIM_ITEMS].place, card);
        set(&p->submitted, get(&p->submitted) + t->item[k % SIM_ITEMS].ns);
    }
    memset(&t->queued, 0, sizeof t->queued);
    for (uint64_t i = 0; i < SIM_PROCESSES; i++)
        if (waiting(at(i, card)))
            places_add(&t->queued, i);
}

struct sim_timeline *sim_card_lock(unsigned card) {
    struct sim_timeline *t = &sim_state->timeline[card];
    if (__builtin_expect(pthread_mutex_lock(&t->lock) == EOWNERDEAD, 0)) {
        recover(t, card);
        pthread_mutex_consistent(&t->lock);
    }
    advance(t, card, sim_now());
    return t;
}

void sim_card_unlock(struct sim_timeline *t) { pthread_mutex_unlock(&t->lock); }

void sim_card_hold(unsigned card, bool still) {
    struct sim_timeline *t = sim_card_lock(card); /* what was before runs as it was before */
    if (still)
        atomic_fetch_or(&sim_state->held, UINT64_C(1) << card);
    else
        atomic_fetch_and(&sim_state->held, ~(UINT64_C(1) << card));
    sim_card_unlock(t);
}

bool sim_timelines_start(struct sim_state *state) {
    uint64_t now = sim_now();
    for (unsigned i = 0; i < SIM_CARDS; i++) {
        struct sim_timeline *t = &state->timeline[i];
        if (!sim_lock_init(&t->lock))
            return false;
        t->clock = now;
        t->window_end = now / SIM_WINDOW_NS * SIM_WINDOW_NS + SIM_WINDOW_NS;
    }
    return true;
}

/* ---- submitting --------------------------------------------------------------------------------------- */

static void track_take(struct sim_process_card *mine, uint64_t place, unsigned card) {
    for (uint64_t i = 0; i < SIM_TRACKS; i++) {
        uint64_t nobody = 0;
        if (atomic_compare_exchange_strong(&sim_state->track[i].user, &nobody, (place << 8 | card) + 1)) {
            sim_state->track[i].turns = 0;
            set(&mine->track, i + 1);
            return;
        }
    }
}

/* Append to the order of submission; false when there is no room. */
static bool append(struct sim_timeline *t, uint64_t place, uint64_t ns) {
    uint64_t last = (t->past - 1) % SIM_ITEMS;
    if (t->past != t->first && t->item[last].place == place && t->item[last].ns) {
        t->item[last].ns += ns;
        return true;
    }
    while (t->past != t->first && t->item[t->first % SIM_ITEMS].ns == 0)
        t->first++;
    if (t->past - t->first == SIM_ITEMS)
        return false;
    t->item[t->past % SIM_ITEMS].place = place;
    t->item[t->past % SIM_ITEMS].ns = ns;
    BARRIER();
    t->past++;
    return true;
}

uint64_t sim_submit(struct sim_process *process, unsigned card, uint64_t ns) {
    struct sim_process_card *mine = &process->card[card];
    uint64_t place = place_of(process);
    struct sim_timeline *t = sim_card_lock(card);
    while (!alternates() && ns && !append(t, place, ns)) {
        /* as on a real card, whose queue is finite too */
        uint64_t room = t->clock + t->item[t->first % SIM_ITEMS].ns;
        sim_card_unlock(t);
        sim_sweep_if_due();
        sim_wait_until(least(room, sim_now() + SIM_LOOK_NS));
        t = sim_card_lock(card);
    }
    if (__builtin_expect(get(&mine->track) == 0, 0))
        track_take(mine, place, card);
    uint64_t end = get(&mine->submitted) + ns;
    set(&mine->submitted, end);
    if (ns)
        places_add(&t->queued, place);
    sim_card_unlock(t);
    return end;
}

/* ---- looking and waiting ------------------------------------------------------------------------------- */

uint64_t sim_passed(const struct sim_timeline *t, const struct sim_process *process, unsigned card,
                    uint64_t position) {
    const struct sim_process_card *p = &process->card[card];
    const struct sim_track *track = track_of(p);
    uint64_t executed = get(&p->executed);
    if (executed < position)
        return 0;
    if (!track || track->turns == 0)
        return t->clock; /* nobody wrote it down: it is over, that is all */
    uint64_t oldest = track->turns > SIM_TURNS ? track->turns - SIM_TURNS : 0;
    for (uint64_t i = track->turns; i-- > oldest;) {
        uint64_t from = track->turn[i % SIM_TURNS].from;
        if (from < position)
            return track->turn[i % SIM_TURNS].at + (position - from);
    }
    return track->turn[oldest % SIM_TURNS].at;
}

/* When to look again at a position that is not reached; `sure` when it will be reached then if nothing
 * is submitted meanwhile. */
static uint64_t next_look(struct sim_timeline *t, uint64_t place, unsigned card, uint64_t position,
                          bool *sure) {
    uint64_t left = position - get(&at(place, card)->executed), when = t->clock;
    *sure = true;
    if (!alternates()) {
        for (uint64_t k = t->first; k != t->past && left; k++) {
            uint64_t ns = t->item[k % SIM_ITEMS].ns;
            if (t->item[k % SIM_ITEMS].place == place) {
                ns = least(ns, left);
                left -= ns;
            }
            when += ns;
        }
        return when;
    }
    uint64_t current = choose(t);
    if (current == place && (places_only(&t->queued, place) || left <= t->turn_end - t->clock))
        return when + left;
    *sure = false;
    uint64_t turn = t->turn_end - t->clock;
    return when + (current == place ? turn : least(turn, waiting(at(current, card))));
}

/* A doubtful look may come a little late: nothing is gained by waiting for it awake. */
static void doze_until(uint64_t when) {
    struct timespec t = {(time_t)(when / 1000000000), (long)(when % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

void sim_await(struct sim_process *process, unsigned card, uint64_t position) {
    struct sim_process_card *mine = &process->card[card];
    uint64_t place = place_of(process);
    while (get(&mine->executed) < position) {
        struct sim_timeline *t = sim_card_lock(card);
        bool sure = false, over = get(&mine->executed) >= position || get(&mine->submitted) < position;
        if (over) {
            sim_card_unlock(t);
            return;
        }
        bool alone = places_only(&t->queued, place) && !held(card);
        uint64_t when = next_look(t, place, card, position, &sure), soon = t->clock + SIM_LOOK_NS;
        sim_card_unlock(t);
        if (!alone) {
            sim_sweep_if_due();
            sure &= when <= soon && !held(card);
            when = held(card) ? soon : least(when, soon);
        }
        if (sure)
            sim_wait_until(when);
        else
            doze_until(when);
    }
}

bool sim_reached(struct sim_process *process, unsigned card, uint64_t position) {
    struct sim_process_card *mine = &process->card[card];
    if (get(&mine->executed) >= position)
        return true;
    struct sim_timeline *t = sim_card_lock(card);
    bool reached = get(&mine->executed) >= position, alone = places_only(&t->queued, place_of(process));
    sim_card_unlock(t);
    if (!reached && !alone)
        sim_sweep_if_due();
    return reached;
}

/* ---- the end of a process -------------------------------------------------------------------------------
 */

static void drop(struct sim_process *process, unsigned card) {
    struct sim_process_card *p = &process->card[card];
    uint64_t place = place_of(process), owner = get(&process->owner);
    struct sim_timeline *t = sim_card_lock(card);
    uint64_t executed = get(&p->executed), track = get(&p->track), last = (t->ended - 1) % SIM_ENDED;
    for (uint64_t k = t->first; k != t->past; k++)
        if (t->item[k % SIM_ITEMS].place == place)
            t->item[k % SIM_ITEMS].ns = 0;
    set(&p->submitted, executed);
    places_remove(&t->queued, place);
    if (executed > get(&p->window))
        sim_sample_write(t, owner, executed - get(&p->window));
    places_remove(&t->ran, place);
    if (executed && !(t->ended && t->gone[last].owner == owner && t->gone[last].ns == executed)) {
        t->gone[t->ended % SIM_ENDED].owner = owner;
        t->gone[t->ended % SIM_ENDED].ns = executed;
        t->ended++;
    }
    set(&p->window, 0);
    set(&p->executed, 0);
    set(&p->submitted, 0);
    set(&p->track, 0);
    if (track)
        atomic_store(&sim_state->track[track - 1].user, 0);
    sim_card_unlock(t);
}

void sim_timelines_drop(struct sim_process *process) {
    for (unsigned card = 0; card < SIM_CARDS; card++)
        if (get(&process->card[card].submitted) || get(&process->card[card].track))
            drop(process, card);
}
