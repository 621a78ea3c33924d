/* trouble.c - injected faults and delays. */
#include "state.h"

int sim_trouble_slow(enum sim_family family) {
    struct sim_trouble *t = &sim_state->trouble[family];
    uint64_t delay = atomic_load(&t->delay), fault = atomic_load(&t->fault);
    if (delay)
        sim_wait_until(sim_now() + delay);
    while (fault >> 32)
        if (atomic_compare_exchange_weak(&t->fault, &fault,
                                         fault >> 32 == 1 ? 0 : fault - (UINT64_C(1) << 32)))
            return (int)(uint32_t)fault;
    return 0;
}
