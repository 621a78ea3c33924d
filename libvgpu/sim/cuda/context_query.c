/* context_query.c - what one may ask of a context, and its settings. */
#include "cuda.h"

ENTRY cuCtxGetDevice(CUdevice *out) {
    CURRENT(c);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = c->device;
    return CUDA_SUCCESS;
}

/* the current context, or the one named; 13.0 gave several calls such a parameter */
static CUresult named(CUcontext wanted, struct sim_context **out) {
    READY();
    if (!wanted)
        return sim_current(out);
    sim_lock();
    bool good = sim_context_known(wanted) && wanted->alive;
    sim_unlock();
    *out = wanted;
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

ENTRY cuCtxGetDevice_v2(CUdevice *out, CUcontext wanted) {
    struct sim_context *c;
    CUresult result = named(wanted, &c);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = c->device;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetFlags(unsigned *flags) {
    CURRENT(c);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = c->flags;
    return CUDA_SUCCESS;
}

ENTRY cuCtxSetFlags(unsigned flags) {
    CURRENT(c);
    c->flags = flags;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetId(CUcontext wanted, unsigned long long *id) {
    struct sim_context *c;
    CUresult result = named(wanted, &c);
    if (result)
        return result;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = c->id;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetApiVersion(CUcontext wanted, unsigned *version) {
    struct sim_context *c;
    CUresult result = named(wanted, &c);
    if (result)
        return result;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetLimit(size_t *value, int limit) {
    CURRENT(c);
    if (!value || limit < 0 || limit > 8)
        return CUDA_ERROR_INVALID_VALUE;
    *value = c->limit[limit];
    return CUDA_SUCCESS;
}

ENTRY cuCtxSetLimit(int limit, size_t value) {
    CURRENT(c);
    if (limit < 0 || limit > 8)
        return CUDA_ERROR_INVALID_VALUE;
    c->limit[limit] = value;
    return CUDA_SUCCESS;
}

ENTRY cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CURRENT(c);
    (void)c;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult get_int(int *out, int value) {
    CURRENT(c);
    (void)c;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = value;
    return CUDA_SUCCESS;
}
static CUresult accept(void) {
    CURRENT(c);
    (void)c;
    return CUDA_SUCCESS;
}
ENTRY cuCtxGetCacheConfig(int *out) { return get_int(out, 0); }
ENTRY cuCtxSetCacheConfig(int value) { return accept(); }
ENTRY cuCtxGetSharedMemConfig(int *out) { return get_int(out, 1); }
ENTRY cuCtxSetSharedMemConfig(int value) { return accept(); }
ENTRY cuCtxResetPersistingL2Cache(void) { return accept(); }

static bool peers(unsigned a, unsigned b) { return a != b && sim_config()->machine.p2p[a][b]; }

ENTRY cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
    READY();
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_valid(a) || !sim_device_valid(b))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = peers(sim_devices[a].card, sim_devices[b].card);
    return CUDA_SUCCESS;
}

/* attributes: 1 performance rank, 2 access, 3 native atomics, 4 arrays, 5 some native atomics only */
ENTRY cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice a, CUdevice b) {
    READY();
    if (!sim_device_valid(a) || !sim_device_valid(b))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || a == b || attribute < 1 || attribute > 5)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned x = sim_devices[a].card, y = sim_devices[b].card;
    bool linked = sim_config()->machine.links[x][y] || sim_config()->machine.nvswitch;
    *value = attribute == 1   ? !linked
             : attribute == 3 ? linked && peers(x, y)
             : attribute == 5 ? 0
                              : peers(x, y);
    return CUDA_SUCCESS;
}

ENTRY cuCtxEnablePeerAccess(CUcontext other, unsigned flags) {
    CURRENT(c);
    if (flags || !other)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_context *o = NULL;
    CUresult result = named(other, &o);
    if (result)
        return result;
    if (!peers(c->card, o->card))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (c->peers & (1u << o->device))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    c->peers |= 1u << o->device;
    return CUDA_SUCCESS;
}

ENTRY cuCtxDisablePeerAccess(CUcontext other) {
    CURRENT(c);
    struct sim_context *o = NULL;
    CUresult result = named(other, &o);
    if (result)
        return result;
    if (!(c->peers & (1u << o->device)))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    c->peers &= ~(1u << o->device);
    return CUDA_SUCCESS;
}
