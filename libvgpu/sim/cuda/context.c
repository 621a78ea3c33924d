/* context.c - primary and created contexts, and each thread's stack of current ones.
 * The first context of a process on a card takes the card's context overhead, the last gives it back. */
#include "cuda.h"
#include <stdlib.h>

#define STACK 64

static struct sim_context *contexts; /* of this initialisation, dead ones too; under the lock */
static _Atomic uint64_t next_id = 1;
static __thread struct {
    unsigned epoch;
    int depth;
    struct sim_context *stack[STACK];
} thread;

static void fresh_thread(void) {
    if (unlikely(thread.epoch != sim_epoch)) {
        thread.epoch = sim_epoch;
        thread.depth = 0;
    }
}

CUresult sim_current(struct sim_context **out) {
    READY();
    if (unlikely(thread.epoch != sim_epoch || thread.depth == 0))
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = thread.stack[thread.depth - 1];
    return likely(atomic_load_explicit(&(*out)->alive, memory_order_relaxed))
               ? CUDA_SUCCESS
               : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult push(struct sim_context *context) {
    fresh_thread();
    if (thread.depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    thread.stack[thread.depth++] = context;
    return CUDA_SUCCESS;
}

void sim_contexts_forget(void) {
    contexts = NULL;
} /* a parent's: the child may not touch, so not free, them */

bool sim_context_known(const struct sim_context *context) {
    for (struct sim_context *c = contexts; c; c = c->next)
        if (c == context)
            return true;
    return false;
}

static void default_limits(struct sim_context *c) {
    static const uint64_t limit[] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0, 0};
    memcpy(c->limit, limit, sizeof limit);
}

/* under the lock */
static CUresult make(int device, bool primary, unsigned flags, struct sim_context **out) {
    unsigned card = sim_devices[device].card;
    struct sim_process *me = sim_here->process;
    struct sim_process_card *mine = &me->card[card];
    uint64_t overhead = sim_config()->machine.card[card].context;
    struct sim_context *c = calloc(1, sizeof *c);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (atomic_load(&mine->contexts) == 0) {
        if (!sim_take(me, card, overhead)) {
            free(c);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        atomic_store(&mine->context, overhead);
    }
    atomic_fetch_add(&mine->contexts, 1);
    c->device = device;
    c->card = card;
    c->primary = primary;
    c->flags = flags;
    c->id = atomic_fetch_add(&next_id, 1);
    default_limits(c);
    atomic_store(&c->alive, true);
    c->next = contexts;
    contexts = c;
    *out = c;
    return CUDA_SUCCESS;
}

/* under the lock */
static void destroy(struct sim_context *c) {
    struct sim_process *me = sim_here->process;
    struct sim_process_card *mine = &me->card[c->card];
    atomic_store(&c->alive, false);
    sim_context_drop_blocks(c);
    if (atomic_load(&mine->contexts) && atomic_fetch_sub(&mine->contexts, 1) == 1) {
        sim_pools_device_reset(c->device);
        sim_give(me, c->card, atomic_exchange(&mine->context, 0));
    }
}

ENTRY cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
    CUresult result = CUDA_SUCCESS;
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    TROUBLE(SIM_CONTEXT);
    sim_lock();
    struct sim_device *device = &sim_devices[d];
    if (!device->primary)
        result = make(d, true, device->primary_flags, &device->primary);
    if (result == CUDA_SUCCESS) {
        device->primary->references++;
        *out = device->primary;
    }
    sim_unlock();
    return result;
}

ENTRY cuDevicePrimaryCtxRelease_v2(CUdevice d) {
    READY();
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_context *c = sim_devices[d].primary;
    bool held = c && c->references > 0;
    if (held && --c->references == 0) {
        sim_devices[d].primary = NULL;
        destroy(c);
    }
    sim_unlock();
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
SAME(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

/* Everything in the context goes; whoever retained it has an empty handle, as with the real one. */
ENTRY cuDevicePrimaryCtxReset_v2(CUdevice d) {
    READY();
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_context *c = sim_devices[d].primary;
    sim_devices[d].primary = NULL;
    if (c)
        destroy(c);
    sim_unlock();
    return CUDA_SUCCESS;
}
SAME(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

ENTRY cuDevicePrimaryCtxSetFlags_v2(CUdevice d, unsigned flags) {
    READY();
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_devices[d].primary_flags = flags;
    if (sim_devices[d].primary)
        sim_devices[d].primary->flags = flags;
    return CUDA_SUCCESS;
}
SAME(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);

ENTRY cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    READY();
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = sim_devices[d].primary_flags;
    *active = sim_devices[d].primary != NULL;
    return CUDA_SUCCESS;
}

ENTRY cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice d) {
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    TROUBLE(SIM_CONTEXT);
    fresh_thread();
    if (thread.depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUresult result = make(d, false, flags, out);
    sim_unlock();
    return result ? result : push(*out);
}
ENTRY cuCtxCreate_v3(CUcontext *out, void *affinity, int count, unsigned flags, CUdevice d) {
    return cuCtxCreate_v2(out, flags, d);
}
ENTRY cuCtxCreate_v4(CUcontext *out, void *parameters, unsigned flags, CUdevice d) {
    return cuCtxCreate_v2(out, flags, d);
}

ENTRY cuCtxDestroy_v2(CUcontext c) {
    READY();
    fresh_thread();
    sim_lock();
    bool good = c && sim_context_known(c) && c->alive && !c->primary;
    if (good)
        destroy(c);
    sim_unlock();
    if (good && thread.depth > 0 && thread.stack[thread.depth - 1] == c)
        thread.depth--;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static bool usable(CUcontext c) {
    sim_lock();
    bool good = sim_context_known(c) && c->alive;
    sim_unlock();
    return good;
}

ENTRY cuCtxSetCurrent(CUcontext c) {
    READY();
    fresh_thread();
    if (c && !(thread.depth > 0 && thread.stack[thread.depth - 1] == c && c->alive) && !usable(c))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (thread.depth > 0)
        thread.depth--;
    return c ? push(c) : CUDA_SUCCESS;
}

ENTRY cuCtxGetCurrent(CUcontext *out) {
    READY();
    fresh_thread();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = thread.depth > 0 ? thread.stack[thread.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

ENTRY cuCtxPushCurrent_v2(CUcontext c) {
    READY();
    return c && usable(c) ? push(c) : CUDA_ERROR_INVALID_CONTEXT;
}

ENTRY cuCtxPopCurrent_v2(CUcontext *out) {
    READY();
    fresh_thread();
    if (thread.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct sim_context *c = thread.stack[--thread.depth];
    if (out)
        *out = c;
    return CUDA_SUCCESS;
}
