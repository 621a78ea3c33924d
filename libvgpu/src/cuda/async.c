/* async.c - stream-ordered allocation. Reserve by how much the pool may grow, ask the driver, read what
 * the pool reserves now, charge that. */
#include "cuda/pool.h"

#define GRANULE (UINT64_C(2) << 20)
#define FIRST_STEP (UINT64_C(32) << 20) /* growth assumed until one was seen */

static uint64_t granules(uint64_t bytes) { return gaia_sum(bytes, GRANULE - 1) / GRANULE * GRANULE; }

struct request {
    gaia_cu_ptr *pointer;
    size_t bytes;
    gaia_cu_object pool, stream;
    bool from_pool, per_thread;
};

static int ask(const struct gaia_driver *driver, const struct request *r) {
    if (r->from_pool)
        return r->per_thread ? driver->cuMemAllocFromPoolAsync_ptsz(r->pointer, r->bytes, r->pool, r->stream)
                             : driver->cuMemAllocFromPoolAsync(r->pointer, r->bytes, r->pool, r->stream);
    return r->per_thread ? driver->cuMemAllocAsync_ptsz(r->pointer, r->bytes, r->stream)
                         : driver->cuMemAllocAsync(r->pointer, r->bytes, r->stream);
}

static void give_to_stream(const struct gaia_driver *driver, const struct request *r) {
    if (r->per_thread)
        driver->cuMemFreeAsync_ptsz(*r->pointer, r->stream);
    else
        driver->cuMemFreeAsync(*r->pointer, r->stream);
}

/* Asked only after a capture was begun somewhere: it costs a call per allocation. */
static bool capturing(struct gaia_process *self, const struct gaia_driver *driver, const struct request *r) {
    int status = 0;
    if (!atomic_load_explicit(&self->captured, memory_order_relaxed))
        return false;
    int error = r->per_thread ? driver->cuStreamIsCapturing_ptsz(r->stream, &status)
                              : driver->cuStreamIsCapturing(r->stream, &status);
    return error == GAIA_CU_SUCCESS && status != 0;
}

/* The device whose current pool the call uses: the stream's. Streams 0, 1 and 2 are the default ones and
 * follow the current context; so does every stream on drivers that cannot be asked. */
static int device_of(const struct gaia_driver *driver, const struct request *r, gaia_cu_device *device) {
    if ((uintptr_t)r->stream > 2 && driver->cuStreamGetDevice(r->stream, device) == GAIA_CU_SUCCESS)
        return GAIA_CU_SUCCESS;
    return driver->cuCtxGetDevice(device);
}

static uint64_t current_pool(struct gaia_process *self, const struct gaia_driver *driver,
                             gaia_cu_device device) {
    gaia_cu_object pool = NULL;
    if ((unsigned)device < GAIA_DEVICES) {
        uint64_t known = atomic_load_explicit(&self->current_pool[device], memory_order_relaxed);
        if (known)
            return known;
    }
    if (driver->cuDeviceGetMemPool(&pool, device) != GAIA_CU_SUCCESS)
        return 0;
    if ((unsigned)device < GAIA_DEVICES)
        atomic_store_explicit(&self->current_pool[device], (uint64_t)(uintptr_t)pool, memory_order_relaxed);
    return (uint64_t)(uintptr_t)pool;
}

/* A pool that nobody introduced is some device's default or current one; failing that it is taken for
 * one of the current device, so that it is counted somewhere. */
static gaia_cu_device device_of_pool(const struct gaia_driver *driver, gaia_cu_object pool,
                                     gaia_cu_device current) {
    int count = 0;
    driver->cuDeviceGetCount(&count);
    for (int device = 0; device < count; device++) {
        gaia_cu_object theirs = NULL;
        if (driver->cuDeviceGetDefaultMemPool(&theirs, device) == GAIA_CU_SUCCESS && theirs == pool)
            return device;
        if (driver->cuDeviceGetMemPool(&theirs, device) == GAIA_CU_SUCCESS && theirs == pool)
            return device;
    }
    return current;
}

/* Room for the pool to grow. *announced = 0 without room: then only what the pool has spare may be used. */
static struct gaia_usage_card *make_room(struct gaia_process *self, const struct gaia_driver *driver,
                                         struct gaia_pool *pool, uint64_t bytes, uint64_t *announced) {
    uint64_t least = granules(bytes), step = self->pool_step ? self->pool_step : FIRST_STEP;
    uint64_t growth = least > step ? least : step;
    struct gaia_usage_card *words = gaia_claim(self, pool->card, growth);
    if (!words && gaia_sum(pool->live, bytes) > pool->charge) {
        gaia_lock_drop(&self->pooling);
        bool freed = gaia_pools_give_back(self, driver, pool->card);
        gaia_lock_take(&self->pooling);
        if (freed)
            words = gaia_claim(self, pool->card, growth);
        if (!words && least < growth && self->pool_step == 0)
            words = gaia_claim(self, pool->card, growth = least); /* how it grows is not known yet */
    }
    *announced = words ? growth : 0;
    return words;
}

/* After the driver said yes: the pool's growth must be covered by what was announced, or by more. */
static bool cover(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_pool *pool,
                  struct gaia_usage_card *words, uint64_t announced) {
    uint64_t before = pool->charge, now = 0;
    if (driver->cuMemPoolGetAttribute((gaia_cu_object)(uintptr_t)pool->handle, GAIA_CU_POOL_RESERVED, &now) !=
        GAIA_CU_SUCCESS)
        now = pool->live;
    uint64_t grown = now > before ? now - before : 0;
    if (grown && (self->pool_step == 0 || grown < self->pool_step))
        self->pool_step = granules(grown);
    if (grown > announced) {
        struct gaia_usage_card *more = gaia_claim(self, pool->card, grown - announced);
        if (!more) {
            if (words)
                gaia_settle(words, announced, 0);
            return false;
        }
        gaia_settle(more, grown - announced, grown - announced);
        grown = announced;
    }
    if (words)
        gaia_settle(words, announced, grown);
    if (now < before)
        gaia_uncharge(self, pool->card, before - now);
    pool->charge = now;
    return true;
}

/* With self->pooling held. */
static int allocate(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_pool *pool,
                    const struct request *r) {
    uint64_t announced;
    struct gaia_usage_card *words = make_room(self, driver, pool, r->bytes, &announced);
    if (!words && gaia_sum(pool->live, r->bytes) > pool->charge)
        return GAIA_CU_OUT_OF_MEMORY;
    int error = ask(driver, r);
    if (error != GAIA_CU_SUCCESS) {
        if (words)
            gaia_settle(words, announced, 0);
        return error;
    }
    struct gaia_entry entry = {.key = *r->pointer,
                               .size = r->bytes,
                               .link = pool->handle,
                               .card = pool->card,
                               .kind = GAIA_KIND_POOL_POINTER};
    pool->live += r->bytes;
    bool covered = cover(self, driver, pool, words, announced);
    if (covered && gaia_table_put(&self->table, &entry))
        return GAIA_CU_SUCCESS;
    pool->live -= r->bytes;
    give_to_stream(driver, r);
    driver->cuMemPoolTrimTo((gaia_cu_object)(uintptr_t)pool->handle, 0);
    gaia_pool_follow(self, driver, pool);
    return GAIA_CU_OUT_OF_MEMORY;
}

static int allocate_async(const struct request *r) {
    const struct gaia_driver *driver = gaia_driver();
    if (!r->pointer || r->bytes == 0)
        return ask(driver, r);
    struct gaia_process *self = gaia_process_enter();
    gaia_cu_device device;
    int error = device_of(driver, r, &device);
    if (error)
        return error;
    if (!self)
        return GAIA_CU_OUT_OF_MEMORY;
    if (capturing(self, driver, r)) { /* becomes a node of a graph: no memory is taken now */
        error = ask(driver, r);
        if (error == GAIA_CU_SUCCESS) {
            gaia_lock_take(&self->pooling);
            self->graph_bytes = gaia_sum(self->graph_bytes, r->bytes);
            gaia_lock_drop(&self->pooling);
        }
        return error;
    }
    uint64_t handle = r->from_pool ? (uint64_t)(uintptr_t)r->pool : current_pool(self, driver, device);
    if (handle == 0)
        return ask(driver, r); /* no pools here: the driver says so */
    gaia_lock_take(&self->pooling);
    struct gaia_pool *pool = gaia_pool_find(self, handle);
    if (!pool) {
        gaia_lock_drop(&self->pooling);
        if (r->from_pool)
            device = device_of_pool(driver, r->pool, device);
        int card = gaia_card(self, driver, device, &error);
        if (card < 0)
            return error ? error : GAIA_CU_OUT_OF_MEMORY;
        gaia_lock_take(&self->pooling);
        pool = gaia_pool_add(self, handle, (unsigned)card, true);
    }
    if (!pool)
        error = GAIA_CU_OUT_OF_MEMORY; /* more pools than can be counted */
    else if (!pool->counted)
        error = ask(driver, r);
    else if (atomic_load_explicit(&self->contexts[pool->card], memory_order_relaxed) == 0 &&
             !gaia_context_found(self, driver, device, pool->card))
        error = GAIA_CU_OUT_OF_MEMORY;
    else
        error = allocate(self, driver, pool, r);
    gaia_lock_drop(&self->pooling);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemAllocAsync(gaia_cu_ptr *pointer, size_t bytes, gaia_cu_object stream) {
    return allocate_async(&(struct request){pointer, bytes, NULL, stream, false, false});
}

GAIA_EXPORT gaia_cu_result cuMemAllocAsync_ptsz(gaia_cu_ptr *pointer, size_t bytes, gaia_cu_object stream) {
    return allocate_async(&(struct request){pointer, bytes, NULL, stream, false, true});
}

GAIA_EXPORT gaia_cu_result cuMemAllocFromPoolAsync(gaia_cu_ptr *pointer, size_t bytes, gaia_cu_object pool,
                                                   gaia_cu_object stream) {
    return allocate_async(&(struct request){pointer, bytes, pool, stream, true, false});
}

GAIA_EXPORT gaia_cu_result cuMemAllocFromPoolAsync_ptsz(gaia_cu_ptr *pointer, size_t bytes,
                                                        gaia_cu_object pool, gaia_cu_object stream) {
    return allocate_async(&(struct request){pointer, bytes, pool, stream, true, true});
}

/* Nothing is taken off a pool's charge here: the memory is the pool's until a synchronisation at least,
 * and the next look at what it reserves follows that. */
static int free_async(gaia_cu_ptr pointer, gaia_cu_object stream, bool per_thread) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    bool plain = false;
    bool known = self && (gaia_table_take(&self->table, GAIA_KIND_POOL_POINTER, pointer, &entry) ||
                          (plain = gaia_table_take(&self->table, GAIA_KIND_POINTER, pointer, &entry)));
    int error =
        per_thread ? driver->cuMemFreeAsync_ptsz(pointer, stream) : driver->cuMemFreeAsync(pointer, stream);
    if (!known)
        return error;
    if (error != GAIA_CU_SUCCESS) {
        gaia_table_put(&self->table, &entry);
        return error;
    }
    if (plain) {
        gaia_give_back(entry.card, entry.size);
        return error;
    }
    gaia_lock_take(&self->pooling);
    struct gaia_pool *pool = gaia_pool_find(self, entry.link);
    if (pool)
        pool->live -= entry.size < pool->live ? entry.size : pool->live;
    gaia_lock_drop(&self->pooling);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemFreeAsync(gaia_cu_ptr pointer, gaia_cu_object stream) {
    return free_async(pointer, stream, false);
}

GAIA_EXPORT gaia_cu_result cuMemFreeAsync_ptsz(gaia_cu_ptr pointer, gaia_cu_object stream) {
    return free_async(pointer, stream, true);
}
