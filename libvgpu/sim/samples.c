/* samples.c - what NVML is allowed to know of the timelines: windows of 1/6 s, late, or nothing. */
#include "places.h"
#include "state.h"

void sim_sample_write(struct sim_timeline *t, uint64_t owner, uint64_t ns) {
    t->sample[t->samples % SIM_SAMPLES] = (struct sim_sample){t->window_end, owner, ns};
    t->samples++;
}

void sim_window_close(struct sim_timeline *t, unsigned card) {
    for (uint64_t i = places_from(&t->ran, 0); i < SIM_PROCESSES; i = places_from(&t->ran, i + 1)) {
        struct sim_process *p = &sim_state->process[i];
        uint64_t executed = atomic_load(&p->card[card].executed), ran;
        ran = executed - atomic_load(&p->card[card].window);
        if (ran)
            sim_sample_write(t, atomic_load(&p->owner), ran);
        atomic_store(&p->card[card].window, executed);
        places_remove(&t->ran, i);
    }
}

int sim_window_shown(const struct sim_timeline *t, uint64_t *end) {
    const struct sim_habit *habit = &sim_state->habit;
    uint64_t until = atomic_load(&habit->until_ns), mode = atomic_load(&habit->mode);
    uint64_t delay = atomic_load(&habit->delay_ns), seen = t->clock > delay ? t->clock - delay : 0;
    if (until && t->clock >= until)
        mode = SIM_NORMAL;
    *end = seen / SIM_WINDOW_NS * SIM_WINDOW_NS;
    return mode == SIM_UNSUPPORTED ? 3 : mode == SIM_SILENT ? 6 : 0;
}
