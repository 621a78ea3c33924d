/* events.c - what befalls a card, told to whoever registered for it. XIDs are all there is. */
#include "nvml.h"
#include <stdlib.h>

#define XID_CRITICAL 8ULL
#define LOOK_MS 50

struct event_data {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

typedef struct event_set {
    bool registered[SIM_CARDS];
    uint64_t seen[SIM_CARDS]; /* of each card: how many were told, or were there before */
} * nvmlEventSet_t;

ENTRY nvmlEventSetCreate(nvmlEventSet_t *out) {
    READY();
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return *out ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

ENTRY nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *out) {
    DEVICE(card, d, out);
    *out = XID_CRITICAL;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t set) {
    DEVICE(card, d, set);
    if (types & ~XID_CRITICAL)
        return NVML_ERROR_NOT_SUPPORTED;
    set->seen[d->card] = atomic_load(&sim_state->card[d->card].xids);
    set->registered[d->card] = true;
    return NVML_SUCCESS;
}

static bool next(nvmlEventSet_t set, struct event_data *out) {
    for (unsigned i = 0; i < sim_config()->machine.count; i++) {
        uint64_t xids = atomic_load(&sim_state->card[i].xids);
        if (!set->registered[i] || set->seen[i] >= xids)
            continue;
        if (xids - set->seen[i] > SIM_XIDS) /* the oldest are lost, as they are with a full queue */
            set->seen[i] = xids - SIM_XIDS;
        uint64_t code = atomic_load(&sim_state->card[i].xid[set->seen[i]++ % SIM_XIDS]);
        *out = (struct event_data){&sim_handles[i], XID_CRITICAL, code, UINT32_MAX, UINT32_MAX};
        return true;
    }
    return false;
}

ENTRY nvmlEventSetWait_v2(nvmlEventSet_t set, struct event_data *out, unsigned timeout_ms) {
    READY();
    if (!set || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint64_t end = sim_now() + timeout_ms * UINT64_C(1000000);
    for (;;) {
        uint64_t now = sim_now(), look = now + LOOK_MS * UINT64_C(1000000);
        if (next(set, out))
            return NVML_SUCCESS;
        if (now >= end)
            return NVML_ERROR_TIMEOUT;
        sim_wait_until(end < look ? end : look);
    }
}
SAME(nvmlEventSetWait, nvmlEventSetWait_v2);
