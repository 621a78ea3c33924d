/*
 * pools.c - stream-ordered memory. A card is charged what a pool has reserved, not what is in use.
 *
 * Growth takes what is missing, rounded up to 2 MiB and at least 32 MiB (less if only that is left);
 * a free returns to the pool; a synchronisation gives back what is above the release threshold.
 */
#include "cuda.h"
#include <stdlib.h>

#define STEP (UINT64_C(2) << 20)
#define GROWTH (UINT64_C(32) << 20)

struct sim_pool {
    int device;
    unsigned card;
    bool alive, standard;
    uint64_t most; /* 0 = as much as the card has */
    uint64_t threshold;
    uint64_t reserved, reserved_high, used, used_high;
    int reuse[3];
    int handle_types;
    struct sim_pool *next;
};

static struct sim_pool *pools; /* of this initialisation; under the lock */

void sim_pools_forget(void) { pools = NULL; }

static uint64_t step_up(uint64_t n) { return (n + STEP - 1) & ~(STEP - 1); }

static void shrink(struct sim_pool *p, uint64_t keep) {
    uint64_t least = step_up(p->used);
    if (keep < least)
        keep = least;
    if (p->reserved > keep) {
        sim_give(sim_here->process, p->card, p->reserved - keep);
        p->reserved = keep;
    }
}

static bool grow(struct sim_pool *p, uint64_t n) {
    uint64_t missing, size;
    if (n > UINT64_C(1) << 46)
        return false;
    if (p->used + n <= p->reserved)
        return true;
    missing = step_up(p->used + n - p->reserved);
    size = missing < GROWTH ? GROWTH : missing;
    if (p->most && p->reserved + size > p->most)
        size = missing;
    if (p->most && p->reserved + size > p->most)
        return false;
    if (!sim_take(sim_here->process, p->card, size)) {
        if (size == missing || !sim_take(sim_here->process, p->card, missing))
            return false;
        size = missing;
    }
    p->reserved += size;
    if (p->reserved > p->reserved_high)
        p->reserved_high = p->reserved;
    return true;
}

static struct sim_pool *pool_new(int device) {
    struct sim_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->device = device;
    p->card = sim_devices[device].card;
    p->alive = true;
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    p->next = pools;
    pools = p;
    return p;
}

static bool valid(const struct sim_pool *p) {
    for (struct sim_pool *q = pools; q; q = q->next)
        if (q == p)
            return q->alive;
    return false;
}

static struct sim_pool *standard(int device) {
    struct sim_device *d = &sim_devices[device];
    if (!d->standard) {
        d->standard = pool_new(device);
        if (d->standard)
            d->standard->standard = true;
        if (!d->current)
            d->current = d->standard;
    }
    return d->standard;
}

void sim_pool_free(struct sim_block *b) {
    struct sim_pool *p = b->pool;
    p->used -= b->size;
    if (!p->alive)
        shrink(p, 0); /* a destroyed pool goes with its last block */
    sim_block_return(b);
}

void sim_pools_synchronised(void) {
    struct sim_pool *p;
    for (p = pools; p && p->reserved <= p->threshold; p = p->next) {
    }
    if (!p)
        return;
    sim_lock();
    for (p = pools; p; p = p->next)
        shrink(p, p->threshold);
    sim_unlock();
}

void sim_pools_device_reset(int device) {
    for (struct sim_pool *p = pools; p; p = p->next)
        if (p->device == device)
            shrink(p, 0);
}

static bool captured(CUstream handle, struct sim_context *c) {
    struct sim_stream *s;
    return sim_stream_of(handle, c, &s) == CUDA_SUCCESS && s && s->capture == 1;
}

static CUresult take(CUdeviceptr *out, uint64_t n, struct sim_pool *pool, struct sim_context *c,
                     CUstream stream) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_block *b;
    if (!out || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_POOL);
    sim_lock();
    if (captured(stream, c)) {
        /* a node of a graph: an address now, memory when the graph is launched */
        b = sim_block_take(n, BLOCK_GRAPH);
        if (b) {
            *out = b->address;
            result = CUDA_SUCCESS;
        }
        sim_unlock();
        return result;
    }
    if (!pool)
        pool = sim_devices[c->device].current ? sim_devices[c->device].current : standard(c->device);
    if (!pool || !valid(pool)) {
        result = pool ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    } else if (grow(pool, n)) {
        b = sim_block_take(n, BLOCK_POOL);
        if (b) {
            b->pool = pool;
            b->context = c;
            pool->used += n;
            if (pool->used > pool->used_high)
                pool->used_high = pool->used;
            *out = b->address;
            result = CUDA_SUCCESS;
        }
    }
    sim_unlock();
    return result;
}

ENTRY cuMemAllocAsync(CUdeviceptr *out, size_t n, CUstream stream) {
    CURRENT(c);
    return take(out, n, NULL, c, stream);
}
PER_THREAD(cuMemAllocAsync, (CUdeviceptr * out, size_t n, CUstream s), (out, n, THREADS(s)))

ENTRY cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t n, CUmemoryPool pool, CUstream stream) {
    CURRENT(c);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    return take(out, n, pool, c, stream);
}
PER_THREAD(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t n, CUmemoryPool pool, CUstream s),
           (out, n, pool, THREADS(s)))

struct pool_properties {
    int type, handle_types;
    CUmemLocation location;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
};

ENTRY cuMemPoolCreate(CUmemoryPool *out, const struct pool_properties *properties) {
    READY();
    if (!out || !properties || properties->type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != AT_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; /* pools of host memory */
    if (!sim_device_valid(properties->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    TROUBLE(SIM_POOL);
    sim_lock();
    struct sim_pool *p = pool_new(properties->location.id);
    if (p) {
        p->most = properties->most;
        p->handle_types = properties->handle_types;
        *out = p;
    }
    sim_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

ENTRY cuMemPoolDestroy(CUmemoryPool pool) {
    READY();
    sim_lock();
    bool good = valid(pool) && !pool->standard;
    if (good) {
        pool->alive = false;
        shrink(pool, 0);
        if (sim_devices[pool->device].current == pool)
            sim_devices[pool->device].current = NULL;
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    READY();
    TROUBLE(SIM_POOL);
    sim_lock();
    bool good = valid(pool);
    if (good)
        shrink(pool, keep);
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum {
    THRESHOLD = 4,
    RESERVED_NOW,
    RESERVED_HIGH,
    USED_NOW,
    USED_HIGH,
    HANDLES = 10,
    PLACE,
    PLACE_TYPE,
    MOST
};

ENTRY cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, const void *value) {
    CUresult result = CUDA_SUCCESS;
    READY();
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    if (!valid(pool))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (attribute >= 1 && attribute <= 3)
        pool->reuse[attribute - 1] = *(const int *)value;
    else if (attribute == THRESHOLD)
        pool->threshold = *(const uint64_t *)value;
    else if (attribute == RESERVED_HIGH && *(const uint64_t *)value == 0)
        pool->reserved_high = pool->reserved;
    else if (attribute == USED_HIGH && *(const uint64_t *)value == 0)
        pool->used_high = pool->used;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

static CUresult attribute_of(const struct sim_pool *p, int attribute, void *out) {
    const uint64_t words[] = {p->threshold, p->reserved, p->reserved_high, p->used, p->used_high};
    if (attribute >= 1 && attribute <= 3)
        *(int *)out = p->reuse[attribute - 1];
    else if (attribute >= THRESHOLD && attribute <= USED_HIGH)
        *(uint64_t *)out = words[attribute - THRESHOLD];
    else if (attribute == HANDLES)
        *(int *)out = p->handle_types;
    else if (attribute == PLACE)
        *(int *)out = p->device;
    else if (attribute == PLACE_TYPE)
        *(int *)out = AT_DEVICE;
    else if (attribute == MOST)
        *(uint64_t *)out = p->most;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

ENTRY cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    READY();
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUresult result = valid(pool) ? attribute_of(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

ENTRY cuMemPoolSetAccess(CUmemoryPool pool, const void *map, size_t count) {
    READY();
    return pool && (map || count == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemPoolGetAccess(unsigned *flags, CUmemoryPool pool, CUmemLocation *location) {
    READY();
    if (!flags || !pool || !location)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    bool good = valid(pool);
    *flags = good && location->type == AT_DEVICE && location->id == pool->device ? 3 : 0;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- which pool a device uses ----------------------------------------------------------------- */

static CUresult chosen(CUmemoryPool *out, CUdevice d, bool current) {
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_pool *p = standard(d);
    if (current && sim_devices[d].current)
        p = sim_devices[d].current;
    sim_unlock();
    *out = p;
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

ENTRY cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice d) { return chosen(out, d, false); }
ENTRY cuDeviceGetMemPool(CUmemoryPool *out, CUdevice d) { return chosen(out, d, true); }

ENTRY cuDeviceSetMemPool(CUdevice d, CUmemoryPool pool) {
    READY();
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    bool good = valid(pool) && pool->device == d;
    if (good)
        sim_devices[d].current = pool;
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult by_location(CUmemoryPool *out, const CUmemLocation *where, int type, bool current) {
    READY();
    if (!where)
        return CUDA_ERROR_INVALID_VALUE;
    if (where->type != AT_DEVICE || type != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    return chosen(out, where->id, current);
}

ENTRY cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *where, int type) {
    return by_location(out, where, type, false);
}
ENTRY cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *where, int type) {
    return by_location(out, where, type, true);
}
ENTRY cuMemSetMemPool(CUmemLocation *where, int type, CUmemoryPool pool) {
    READY();
    if (!where)
        return CUDA_ERROR_INVALID_VALUE;
    if (where->type != AT_DEVICE || type != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuDeviceSetMemPool(where->id, pool);
}

int sim_pool_handle_types(const struct sim_pool *pool);
int sim_pool_handle_types(const struct sim_pool *pool) { return pool ? pool->handle_types : 0; }
