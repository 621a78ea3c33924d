/* process.c - which processes have a context on a card, and how busy they keep it. */
#include "gaia_pages.h"
#include "nvml.h"
#include <sys/time.h>

#define WINDOW_NS UINT64_C(166666667) /* the shortest sampling period that NVML documents: 1/6 s */

struct record1 {
    unsigned pid;
    unsigned long long memory;
};
struct record2 {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
struct detail {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_memory;
};

/* Fill records of `size` bytes, all of which begin alike; `count` is room, then how many there are. */
static nvmlReturn_t list(unsigned card, unsigned *count, void *out, size_t size) {
    unsigned room = out ? *count : 0, n = 0;
    sim_lock();
    sim_sweep();
    uint64_t places = atomic_load(&sim_state->high_water);
    for (uint64_t i = 0; i < places && i < SIM_PROCESSES; i++) {
        const struct sim_process *p = &sim_state->process[i];
        uint64_t owner = atomic_load(&p->owner);
        if (!owner || atomic_load(&p->card[card].contexts) == 0)
            continue;
        if (n < room) {
            struct detail d = {GAIA_OWNER_PID(owner), atomic_load(&p->card[card].used), ~0u, ~0u, 0};
            memcpy((char *)out + n * size, &d, size);
        }
        n++;
    }
    sim_unlock();
    *count = n;
    return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

ENTRY nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned *count, void *out) {
    DEVICE(card, d, count);
    return list(d->card, count, out, sizeof(struct record1));
}
ENTRY nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned *count, void *out) {
    DEVICE(card, d, count);
    return list(d->card, count, out, sizeof(struct record2));
}
SAME(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses_v2);

ENTRY nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t d, unsigned *count, void *out) {
    DEVICE(card, d, count);
    *count = 0;
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses);
SAME(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses);
SAME(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses);
SAME(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses);
SAME(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses);

struct details {
    unsigned version, mode, count;
    struct detail *records;
};

ENTRY nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t d, struct details *out) {
    DEVICE(card, d, out);
    if (out->version != (sizeof *out | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->mode == 1 || out->mode == 2) { /* graphics, MPS */
        out->count = 0;
        return NVML_SUCCESS;
    }
    return list(d->card, &out->count, out->records, sizeof(struct detail));
}

/* ---- utilisation: what was run in this reader's last window ------------------------------------------ */

static struct {
    uint64_t owner[SIM_PROCESSES];
    uint64_t done[SIM_PROCESSES][SIM_CARDS];
    unsigned char percent[SIM_PROCESSES][SIM_CARDS];
    uint64_t at;
    unsigned long long stamp; /* microseconds of the day's clock, as NVML's */
    unsigned windows;
    pthread_mutex_t lock;
} samples = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void sample(void) {
    uint64_t now = sim_now(), span = now - samples.at;
    struct timeval day;
    if (samples.windows && span < WINDOW_NS)
        return;
    gettimeofday(&day, NULL);
    for (unsigned i = 0; i < SIM_PROCESSES && i < atomic_load(&sim_state->high_water); i++) {
        uint64_t owner = atomic_load(&sim_state->process[i].owner);
        bool same = samples.windows && owner && samples.owner[i] == owner;
        for (unsigned c = 0; c < SIM_CARDS; c++) {
            uint64_t done = owner ? sim_done_ns(&sim_state->process[i].card[c], now) : 0;
            uint64_t ran = same && done > samples.done[i][c] ? done - samples.done[i][c] : 0;
            samples.percent[i][c] = (unsigned char)(ran >= span ? same ? 100 : 0 : ran * 100 / span);
            samples.done[i][c] = done;
        }
        samples.owner[i] = owner;
    }
    samples.at = now;
    samples.stamp = (unsigned long long)day.tv_sec * 1000000u + (unsigned long long)day.tv_usec;
    samples.windows++;
}

unsigned sim_nvml_busy(unsigned card) {
    unsigned sum = 0;
    pthread_mutex_lock(&samples.lock);
    sample();
    if (samples.windows == 1) /* the first look has no window yet: is the card at work now? */
        sum = atomic_load(&sim_state->card[card].idle_at) > samples.at ? 100 : 0;
    for (unsigned i = 0; i < SIM_PROCESSES && i < atomic_load(&sim_state->high_water); i++)
        sum += samples.percent[i][card];
    pthread_mutex_unlock(&samples.lock);
    return sum > 100 ? 100 : sum;
}

struct use {
    unsigned pid;
    unsigned long long stamp;
    unsigned sm, memory, encoder, decoder;
};

/* Like the real one: no sample of a process that was idle, and NOT_FOUND when there is none at all. */
ENTRY nvmlDeviceGetProcessUtilization(nvmlDevice_t d, struct use *out, unsigned *count,
                                      unsigned long long since) {
    unsigned room, n = 0;
    DEVICE(card, d, count);
    room = out ? *count : 0;
    pthread_mutex_lock(&samples.lock);
    sample();
    for (unsigned i = 0;
         samples.stamp > since && i < SIM_PROCESSES && i < atomic_load(&sim_state->high_water); i++) {
        unsigned percent = samples.percent[i][d->card];
        if (percent == 0)
            continue;
        if (n < room)
            out[n] =
                (struct use){GAIA_OWNER_PID(samples.owner[i]), samples.stamp, percent, percent / 2, 0, 0};
        n++;
    }
    pthread_mutex_unlock(&samples.lock);
    *count = n;
    return n == 0 ? NVML_ERROR_NOT_FOUND : n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

ENTRY nvmlDeviceGetUtilizationRates(nvmlDevice_t d, unsigned out[2]) {
    DEVICE(card, d, out);
    out[0] = sim_nvml_busy(d->card);
    out[1] = out[0] / 2;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned *out, unsigned *period) {
    DEVICE(card, d, out);
    *out = 0;
    if (period)
        *period = (unsigned)(WINDOW_NS / 1000);
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetDecoderUtilization, nvmlDeviceGetEncoderUtilization);
