/* process.c - which processes have a context on a card. */
#include "nvml.h"

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
        unsigned pid;
        if (!owner || atomic_load(&p->card[card].contexts) == 0 || !sim_process_pid(owner, &pid))
            continue;
        if (n < room) {
            struct detail d = {pid, atomic_load(&p->card[card].used), ~0u, ~0u, 0};
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
