/* trouble.c - injected faults and delays. */
#include "state.h"

/* until the delay is over, or taken back */
static void wait_out(const struct sim_trouble *t, uint64_t delay) {
    uint64_t end = sim_now() + delay;
    for (uint64_t now = sim_now(); now < end && atomic_load(&t->delay); now = sim_now())
        sim_wait_until(end - now < SIM_LOOK_NS ? end : now + SIM_LOOK_NS);
}

int sim_trouble_slow(enum sim_family family) {
    struct sim_trouble *t = &sim_state->trouble[family];
    uint64_t delay = atomic_load(&t->delay), fault = atomic_load(&t->fault);
    if (delay)
        wait_out(t, delay);
    while (fault >> 32)
        if (atomic_compare_exchange_weak(&t->fault, &fault,
                                         fault >> 32 == 1 ? 0 : fault - (UINT64_C(1) << 32)))
            return (int)(uint32_t)fault;
    return 0;
}
