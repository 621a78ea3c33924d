/* memory.c - a card's memory. Version 1 counts the driver's reserve as used, version 2 shows it apart. */
#include "nvml.h"

struct memory1 {
    unsigned long long total, free, used;
};
struct memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static void read_memory(unsigned card, struct memory2 *out) {
    const struct sim_card *c = &sim_config()->machine.card[card];
    sim_lock();
    sim_sweep(); /* the real one frees when a process ends; this one when somebody looks */
    out->used = atomic_load(&sim_state->card[card].used);
    sim_unlock();
    out->total = c->memory;
    out->reserved = c->memory - sim_usable(c);
    out->free = sim_usable(c) > out->used ? sim_usable(c) - out->used : 0;
}

ENTRY nvmlDeviceGetMemoryInfo(nvmlDevice_t d, struct memory1 *out) {
    struct memory2 m;
    DEVICE(card, d, out);
    read_memory(d->card, &m);
    *out = (struct memory1){m.total, m.free, m.total - m.free};
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, struct memory2 *out) {
    DEVICE(card, d, out);
    if (out->version != (sizeof *out | 2u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    read_memory(d->card, out);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t d, struct memory1 *out) {
    DEVICE(card, d, out);
    *out = (struct memory1){256 << 20, 254 << 20, 2 << 20};
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t d, unsigned long long *out) {
    DEVICE(card, d, out);
    return NVML_ERROR_NOT_SUPPORTED;
}
