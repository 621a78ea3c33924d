/* utilisation.c - how busy the cards are, from the samples that the timelines leave (samples.c). */
#include "nvml.h"

static unsigned percent(uint64_t ns) {
    uint64_t n = (ns * 100 + SIM_WINDOW_NS / 2) / SIM_WINDOW_NS;
    return n > 100 ? 100 : (unsigned)n;
}

static uint64_t oldest(const struct sim_timeline *t) {
    return t->samples > SIM_SAMPLES ? t->samples - SIM_SAMPLES : 0;
}

/* ns that the card worked in the newest window that may be seen; returns NVML's code */
static nvmlReturn_t newest(unsigned card, uint64_t *ns) {
    uint64_t end;
    struct sim_timeline *t = sim_card_lock(card);
    nvmlReturn_t result = sim_window_shown(t, &end);
    *ns = 0;
    for (uint64_t i = t->samples; result == NVML_SUCCESS && i-- > oldest(t);) {
        const struct sim_sample *s = &t->sample[i % SIM_SAMPLES];
        if (s->at < end)
            break;
        *ns += s->at == end ? s->ns : 0;
    }
    sim_card_unlock(t);
    return result;
}

unsigned sim_nvml_busy(unsigned card) {
    uint64_t ns;
    newest(card, &ns);
    return percent(ns);
}

ENTRY nvmlDeviceGetUtilizationRates(nvmlDevice_t d, unsigned out[2]) {
    uint64_t ns;
    DEVICE(card, d, out);
    sim_sweep_lightly();
    if (newest(d->card, &ns) == NVML_ERROR_NOT_SUPPORTED)
        return NVML_ERROR_NOT_SUPPORTED;
    out[0] = percent(ns);
    out[1] = out[0] / 2;
    return NVML_SUCCESS;
}

struct use {
    unsigned pid;
    unsigned long long stamp; /* microseconds of the day's clock */
    unsigned sm, memory, encoder, decoder;
};

/* Like the real one: of each process the newest sample after `since`, none of a process that was idle,
 * and NOT_FOUND when there is none at all. */
static nvmlReturn_t uses(unsigned card, struct use *out, unsigned *count, unsigned long long since) {
    unsigned pids[SIM_SAMPLES], room = out ? *count : 0, n = 0;
    uint64_t end, epoch = atomic_load(&sim_state->epoch_ns);
    struct sim_timeline *t = sim_card_lock(card);
    nvmlReturn_t result = sim_window_shown(t, &end);
    for (uint64_t i = t->samples; result == NVML_SUCCESS && i-- > oldest(t);) {
        const struct sim_sample *s = &t->sample[i % SIM_SAMPLES];
        unsigned pid, sm = percent(s->ns), k = 0;
        unsigned long long stamp = (s->at + epoch) / 1000;
        if (!sim_process_pid(s->owner, &pid))
            continue;
        while (k < n && pids[k] != pid)
            k++;
        if (s->at > end || stamp <= since || sm == 0 || k < n)
            continue;
        if (n < room)
            out[n] = (struct use){pid, stamp, sm, sm / 2, 0, 0};
        pids[n++] = pid;
    }
    sim_card_unlock(t);
    *count = n;
    if (result == NVML_SUCCESS && n == 0)
        result = NVML_ERROR_NOT_FOUND;
    return result == NVML_SUCCESS && n > room ? NVML_ERROR_INSUFFICIENT_SIZE : result;
}

ENTRY nvmlDeviceGetProcessUtilization(nvmlDevice_t d, struct use *out, unsigned *count,
                                      unsigned long long since) {
    DEVICE(card, d, count);
    sim_sweep_lightly();
    return uses(d->card, out, count, since);
}

ENTRY nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned *out, unsigned *period) {
    DEVICE(card, d, out);
    *out = 0;
    if (period)
        *period = (unsigned)(SIM_WINDOW_NS / 1000);
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetDecoderUtilization, nvmlDeviceGetEncoderUtilization);
