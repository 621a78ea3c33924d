/* places.h - sets of process places. */
#ifndef SIM_PLACES_H
#define SIM_PLACES_H

#include "timeline.h"

static inline void places_add(struct sim_places *s, uint64_t place) {
    s->word[place / 64] |= UINT64_C(1) << (place % 64);
    s->any |= UINT64_C(1) << (place / 64);
}

static inline void places_remove(struct sim_places *s, uint64_t place) {
    s->word[place / 64] &= ~(UINT64_C(1) << (place % 64));
    if (s->word[place / 64] == 0)
        s->any &= ~(UINT64_C(1) << (place / 64));
}

static inline bool places_have(const struct sim_places *s, uint64_t place) {
    return s->word[place / 64] >> (place % 64) & 1;
}

/* The least place that is at least `from`, or SIM_PROCESSES. */
static inline uint64_t places_from(const struct sim_places *s, uint64_t from) {
    if (from >= SIM_PROCESSES)
        return SIM_PROCESSES;
    uint64_t word = s->word[from / 64] >> (from % 64);
    if (word)
        return from + (uint64_t)__builtin_ctzll(word);
    uint64_t later = s->any & ~((UINT64_C(2) << (from / 64)) - 1);
    if (later == 0)
        return SIM_PROCESSES;
    uint64_t i = (uint64_t)__builtin_ctzll(later);
    return i * 64 + (uint64_t)__builtin_ctzll(s->word[i]);
}

/* The place after `place` in turn; the set must not be empty. */
static inline uint64_t places_after(const struct sim_places *s, uint64_t place) {
    uint64_t next = places_from(s, place + 1);
    return next < SIM_PROCESSES ? next : places_from(s, 0);
}

/* Tell whether a place is the only one of the set. */
static inline bool places_only(const struct sim_places *s, uint64_t place) {
    uint64_t word = s->word[place / 64];
    return s->any == UINT64_C(1) << (place / 64) && word == UINT64_C(1) << (place % 64);
}

#endif
