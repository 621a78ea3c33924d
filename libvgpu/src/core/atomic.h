/* atomic.h - every atomic operation of this library, by what it is for. The order of each is argued
 * here once; callers only choose the purpose.
 *
 * The accounting rule is announce-then-check (Dekker's): each process writes its own `pending` and
 * then reads everybody's. It needs a total order between one's own write and the reads that follow,
 * which only sequential consistency gives. Everything else needs less. */
#ifndef GAIA_ATOMIC_H
#define GAIA_ATOMIC_H

#include "gaia_pages.h"
#include <stdbool.h>

/* Announce bytes. Sequentially consistent: of two racing announcers at least one must see the other,
 * so this store may not pass the loads of the check. */
static inline void gaia_announce(gaia_word *pending, uint64_t bytes) {
    atomic_fetch_add_explicit(pending, bytes, memory_order_seq_cst);
}

/* Loads of the check. Sequentially consistent, the other half of the above; a plain load on x86. */
static inline uint64_t gaia_read(const gaia_word *word) {
    return atomic_load_explicit((gaia_word *)word, memory_order_seq_cst);
}

/* What is only shown, or written by this process alone. Relaxed: no other word is derived from it. */
static inline uint64_t gaia_peek(const gaia_word *word) {
    return atomic_load_explicit((gaia_word *)word, memory_order_relaxed);
}

static inline void gaia_put(gaia_word *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* Publish a word after everything written before it: a reader that acquires it sees all of that. */
static inline void gaia_publish(gaia_word *word, uint64_t value) {
    atomic_store_explicit(word, value, memory_order_release);
}

/* used += bytes (or returns += 1), before the announcement is taken back. Relaxed: the release of the later
 * gaia_withdraw orders it, and readers load `pending` before `used`, so a reader that no longer sees
 * the announcement sees this. */
static inline void gaia_charge(gaia_word *used, uint64_t bytes) {
    atomic_fetch_add_explicit(used, bytes, memory_order_relaxed);
}

/* word -= bytes, never below zero. Release: what was charged before is visible to whoever sees the
 * smaller word. A word smaller than BYTES means that somebody else scribbled here; the difference is put
 * back so that the word ends near zero instead of near 2^64, which would refuse everything for ever. */
static inline void gaia_withdraw(gaia_word *word, uint64_t bytes) {
    uint64_t before = atomic_fetch_sub_explicit(word, bytes, memory_order_release);
    if (__builtin_expect(before < bytes, 0))
        atomic_fetch_add_explicit(word, bytes - before, memory_order_relaxed);
}

/* Take a process place: OWNER must still be OLD. Sequentially consistent, because the winner's next
 * stores must not be seen before the claim and the loser must see the claim. */
static inline bool gaia_claim_owner(gaia_word *owner, uint64_t old, uint64_t identity) {
    return atomic_compare_exchange_strong_explicit(owner, &old, identity, memory_order_seq_cst,
                                                   memory_order_seq_cst);
}

/* Raise WORD to at least VALUE. Sequentially consistent: a process announces only after its place is
 * inside high_water, and every check that could race with that announcement must look that far. */
static inline void gaia_raise(gaia_word *word, uint64_t value) {
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    while (now < value && !atomic_compare_exchange_weak_explicit(word, &now, value, memory_order_seq_cst,
                                                                 memory_order_relaxed)) {
    }
}

/* a + b, stuck at the top: a sum over words that others may have scribbled on must not wrap to small. */
static inline uint64_t gaia_sum(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

#endif
