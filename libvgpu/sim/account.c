/* account.c - a card's memory: charged to a process, exact at every moment. */
#include "state.h"

static bool fits(unsigned card, uint64_t n) {
    uint64_t used = atomic_load_explicit(&sim_state->card[card].used, memory_order_relaxed);
    uint64_t most = sim_usable(&sim_config()->machine.card[card]);
    return used <= most && n <= most - used;
}

/* The lock is held: relaxed stores are enough, the order is for whoever dies in between. The process's
 * word goes first, because the totals are summed from these words. */
bool sim_take(struct sim_process *process, unsigned card, uint64_t n) {
    struct sim_card_state *c = &sim_state->card[card];
    sim_word *mine = &process->card[card].used;
    if (__builtin_expect(!fits(card, n), 0)) {
        sim_sweep();
        if (!fits(card, n))
            return false;
    }
    if (__builtin_expect(atomic_load_explicit(&c->used, memory_order_relaxed) + n >
                             atomic_load_explicit(&c->peak, memory_order_relaxed),
                         0))
        sim_sweep(); /* a peak counts no byte of a process that has ended already */
    uint64_t used = atomic_load_explicit(&c->used, memory_order_relaxed) + n;
    atomic_store_explicit(mine, atomic_load_explicit(mine, memory_order_relaxed) + n, memory_order_release);
    atomic_store_explicit(&c->used, used, memory_order_release);
    if (used > atomic_load_explicit(&c->peak, memory_order_relaxed))
        atomic_store_explicit(&c->peak, used, memory_order_relaxed);
    return true;
}

void sim_give(struct sim_process *process, unsigned card, uint64_t n) {
    struct sim_card_state *c = &sim_state->card[card];
    sim_word *mine = &process->card[card].used;
    uint64_t held = atomic_load_explicit(mine, memory_order_relaxed);
    if (__builtin_expect(n > held, 0))
        n = held; /* a thread's last free after the process's end has given back everything */
    atomic_store_explicit(mine, held - n, memory_order_release);
    atomic_store_explicit(&c->used, atomic_load_explicit(&c->used, memory_order_relaxed) - n,
                          memory_order_release);
}
