/* pool.c - the list of pools and the calls that make, change and end them. */
#include "cuda/pool.h"

struct gaia_pool *gaia_pool_find(struct gaia_process *self, uint64_t handle) {
    for (unsigned i = 0; i < GAIA_POOLS; i++)
        if (self->pool[i].handle == handle)
            return &self->pool[i];
    return NULL;
}

struct gaia_pool *gaia_pool_add(struct gaia_process *self, uint64_t handle, unsigned card, bool counted) {
    struct gaia_pool *pool = gaia_pool_find(self, handle);
    if (pool)
        return pool;
    pool = gaia_pool_find(self, 0);
    if (!pool)
        return NULL;
    *pool = (struct gaia_pool){.handle = handle, .card = (uint8_t)card, .counted = counted};
    if (counted)
        atomic_fetch_add_explicit(&self->pools, 1, memory_order_relaxed);
    return pool;
}

static void remove_pool(struct gaia_process *self, struct gaia_pool *pool) {
    if (pool->counted) {
        gaia_uncharge(self, pool->card, pool->charge);
        atomic_fetch_sub_explicit(&self->pools, 1, memory_order_relaxed);
    }
    *pool = (struct gaia_pool){0};
}

/* What the driver keeps on the card for POOL. Where it does not say, the pointers handed out. */
static uint64_t reserved(const struct gaia_driver *driver, const struct gaia_pool *pool) {
    uint64_t bytes = 0;
    if (driver->cuMemPoolGetAttribute((gaia_cu_object)(uintptr_t)pool->handle, GAIA_CU_POOL_RESERVED,
                                      &bytes) != GAIA_CU_SUCCESS)
        return pool->live;
    return bytes;
}

void gaia_pool_follow(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_pool *pool) {
    uint64_t now = reserved(driver, pool);
    struct gaia_usage_process *place = gaia_process_place(self);
    if (now < pool->charge)
        gaia_uncharge(self, pool->card, pool->charge - now);
    else if (now > pool->charge && place)
        gaia_charge(&place->card[pool->card].used, now - pool->charge);
    pool->charge = now;
}

void gaia_pools_refresh_slow(struct gaia_process *self, const struct gaia_driver *driver, unsigned card) {
    gaia_lock_take(&self->pooling);
    for (unsigned i = 0; i < GAIA_POOLS; i++)
        if (self->pool[i].handle && self->pool[i].counted && self->pool[i].card == card)
            gaia_pool_follow(self, driver, &self->pool[i]);
    gaia_lock_drop(&self->pooling);
}

static bool trim(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_pool *pool) {
    uint64_t before = pool->charge;
    driver->cuMemPoolTrimTo((gaia_cu_object)(uintptr_t)pool->handle, 0);
    gaia_pool_follow(self, driver, pool);
    return pool->charge < before;
}

bool gaia_pools_give_back_slow(struct gaia_process *self, const struct gaia_driver *driver, unsigned card) {
    bool any = false;
    gaia_lock_take(&self->pooling);
    for (unsigned i = 0; i < GAIA_POOLS; i++) {
        struct gaia_pool *pool = &self->pool[i];
        if (pool->handle && pool->counted && pool->card == card && pool->charge > 0)
            any |= trim(self, driver, pool);
    }
    gaia_lock_drop(&self->pooling);
    return any;
}

int gaia_pool_free(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_ptr pointer) {
    struct gaia_entry entry;
    if (!self || !gaia_table_take(&self->table, GAIA_KIND_POOL_POINTER, pointer, &entry))
        return driver->cuMemFree_v2(pointer);
    int error = driver->cuMemFree_v2(pointer);
    if (error != GAIA_CU_SUCCESS) {
        gaia_table_put(&self->table, &entry);
        return error;
    }
    gaia_lock_take(&self->pooling);
    struct gaia_pool *pool = gaia_pool_find(self, entry.link);
    if (pool) {
        pool->live -= entry.size < pool->live ? entry.size : pool->live;
        gaia_pool_follow(self, driver, pool); /* this free waits for the device, so the pool may shrink */
    }
    gaia_lock_drop(&self->pooling);
    return error;
}

/* Forget which pool is whose current one: a few calls change it, and asking again is cheap. */
static void forget_current(struct gaia_process *self) {
    for (int i = 0; i < GAIA_DEVICES; i++)
        atomic_store_explicit(&self->current_pool[i], 0, memory_order_relaxed);
}

/* A pool handle that the program was given. Memory of the host is not counted; managed memory is,
 * wherever it prefers to be, on the device named or else on the current one. */
static void learn(const struct gaia_driver *driver, gaia_cu_object handle, const gaia_cu_location *location,
                  int type) {
    struct gaia_process *self = gaia_process_enter();
    if (!self || !handle || !location)
        return;
    gaia_cu_device device = location->id;
    bool counted = location->type == GAIA_CU_LOCATION_DEVICE;
    if (!counted && type == GAIA_CU_ALLOCATION_MANAGED)
        counted = driver->cuCtxGetDevice(&device) == GAIA_CU_SUCCESS;
    int error, card = counted ? gaia_card(self, driver, device, &error) : 0;
    if (card < 0)
        return; /* met again, and refused, when something is allocated from it */
    gaia_lock_take(&self->pooling);
    gaia_pool_add(self, (uint64_t)(uintptr_t)handle, (unsigned)card, counted);
    gaia_lock_drop(&self->pooling);
}

GAIA_EXPORT gaia_cu_result cuMemPoolCreate(gaia_cu_object *pool, const gaia_cu_pool_props *props) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuMemPoolCreate(pool, props);
    if (error == GAIA_CU_SUCCESS && pool && props)
        learn(driver, *pool, &props->location, props->type);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemPoolDestroy(gaia_cu_object handle) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    if (!self)
        return driver->cuMemPoolDestroy(handle);
    /* Under the lock: another thread's new pool may get the same handle at once. */
    gaia_lock_take(&self->pooling);
    int error = driver->cuMemPoolDestroy(handle);
    struct gaia_pool *pool = gaia_pool_find(self, (uint64_t)(uintptr_t)handle);
    if (error == GAIA_CU_SUCCESS && pool)
        remove_pool(self, pool);
    forget_current(self); /* a destroyed current pool is replaced by the default one */
    gaia_lock_drop(&self->pooling);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemPoolTrimTo(gaia_cu_object handle, size_t keep) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuMemPoolTrimTo(handle, keep);
    struct gaia_process *self = gaia_process_known();
    if (error != GAIA_CU_SUCCESS || !self || !gaia_pools_any(self))
        return error;
    gaia_lock_take(&self->pooling);
    struct gaia_pool *pool = gaia_pool_find(self, (uint64_t)(uintptr_t)handle);
    if (pool && pool->counted)
        gaia_pool_follow(self, driver, pool);
    gaia_lock_drop(&self->pooling);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemPoolImportFromShareableHandle(gaia_cu_object *pool, void *handle, int type,
                                                              uint64_t flags) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuMemPoolImportFromShareableHandle(pool, handle, type, flags);
    struct gaia_process *self = error == GAIA_CU_SUCCESS && pool ? gaia_process_enter() : NULL;
    if (self) { /* the process that exports it pays */
        gaia_lock_take(&self->pooling);
        gaia_pool_add(self, (uint64_t)(uintptr_t)*pool, 0, false);
        gaia_lock_drop(&self->pooling);
    }
    return error;
}

GAIA_EXPORT gaia_cu_result cuDeviceSetMemPool(gaia_cu_device device, gaia_cu_object pool) {
    struct gaia_process *self = gaia_process_known();
    int error = gaia_driver()->cuDeviceSetMemPool(device, pool);
    if (self)
        forget_current(self);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemSetMemPool(gaia_cu_location *location, int type, gaia_cu_object pool) {
    struct gaia_process *self = gaia_process_known();
    int error = gaia_driver()->cuMemSetMemPool(location, type, pool);
    if (self)
        forget_current(self);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemGetMemPool(gaia_cu_object *pool, gaia_cu_location *location, int type) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuMemGetMemPool(pool, location, type);
    if (error == GAIA_CU_SUCCESS && pool)
        learn(driver, *pool, location, type);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemGetDefaultMemPool(gaia_cu_object *pool, gaia_cu_location *location,
                                                  int type) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuMemGetDefaultMemPool(pool, location, type);
    if (error == GAIA_CU_SUCCESS && pool)
        learn(driver, *pool, location, type);
    return error;
}
