#include "core/seen.h"

#define POINT_SHIFT 17
#define POINTS 48 /* per word, in its low bits */
#define FEW 4
#define AHEAD 600 /* turns, a minute; what seems further ahead is left over from an hour ago, or nonsense */
#define MASK ((UINT64_C(1) << POINTS) - 1)

/* Set BITS in the word of TURN; those that were not yet set. */
static uint64_t set(gaia_word *word, uint64_t turn, uint64_t bits) {
    uint64_t before = gaia_peek(word), after, fresh;
    do {
        int16_t age = (int16_t)(uint16_t)((before >> POINTS) - turn);
        if (age > 0 && age < AHEAD)
            return bits; /* the word has moved on */
        fresh = age == 0 ? bits & ~before : bits;
        after = turn << POINTS | (age == 0 ? before & MASK : 0) | bits;
        /* Relaxed: the word stands for itself. */
    } while (!atomic_compare_exchange_weak_explicit(word, &before, after, memory_order_relaxed,
                                                    memory_order_relaxed));
    return fresh;
}

/* The first point at or after NS. Each lies somewhere else in its own 131 us, because whoever has paid for
 * one waits a whole number of those at many rates, and would find the next ones at the same place, or
 * miss them, again and again. */
static uint64_t point_after(uint64_t ns) {
    uint64_t point = ns >> POINT_SHIFT, mixed = (point + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t place = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> (64 - POINT_SHIFT);
    return point + ((ns & ((UINT64_C(1) << POINT_SHIFT) - 1)) > place);
}

uint64_t gaia_seen_add(gaia_word seen[GAIA_SEEN], uint64_t start, uint64_t end) {
    uint64_t first = point_after(start), past = point_after(end), most = (uint64_t)(GAIA_SEEN - 1) * POINTS;
    if (past <= first || end <= start)
        return 0;
    uint64_t all = past - first, fresh = all > most ? all - most : 0;
    for (uint64_t point = first + fresh; point < past;) {
        uint64_t group = point / POINTS, from = point % POINTS;
        uint64_t count = POINTS - from < past - point ? POINTS - from : past - point;
        uint64_t bits = (MASK >> (POINTS - count)) << from;
        fresh +=
            (uint64_t)__builtin_popcountll(set(&seen[group % GAIA_SEEN], group / GAIA_SEEN & 0xffff, bits));
        point += count;
    }
    /* long ones to the nanosecond when all of it is new */
    if (all < FEW)
        return fresh << POINT_SHIFT;
    return fresh == all ? end - start : (uint64_t)((__uint128_t)(end - start) * fresh / all);
}
