/* memory.c - plain device memory: one call, one pointer, one size. */
#include "cuda/hook.h"
#include "cuda/pool.h"

GAIA_EXPORT gaia_cu_result cuMemAlloc_v2(gaia_cu_ptr *pointer, size_t bytes) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_hold hold;
    if (!pointer || bytes == 0) /* the driver's to refuse */
        return driver->cuMemAlloc_v2(pointer, bytes);
    int error = gaia_hold_current(&hold, driver, bytes);
    if (error)
        return error;
    error = driver->cuMemAlloc_v2(pointer, bytes);
    if (error != GAIA_CU_SUCCESS) {
        gaia_hold_drop(&hold);
        return error;
    }
    if (gaia_hold_keep(&hold, GAIA_KIND_POINTER, *pointer, bytes, gaia_current_context(driver)))
        return GAIA_CU_SUCCESS;
    driver->cuMemFree_v2(*pointer);
    return GAIA_CU_OUT_OF_MEMORY;
}

GAIA_EXPORT gaia_cu_result cuMemAllocManaged(gaia_cu_ptr *pointer, size_t bytes, unsigned flags) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_hold hold;
    if (!pointer || bytes == 0)
        return driver->cuMemAllocManaged(pointer, bytes, flags);
    /* All of it counts: any page of it may move to the device at any moment, without a call. */
    int error = gaia_hold_current(&hold, driver, bytes);
    if (error)
        return error;
    error = driver->cuMemAllocManaged(pointer, bytes, flags);
    if (error != GAIA_CU_SUCCESS) {
        gaia_hold_drop(&hold);
        return error;
    }
    if (gaia_hold_keep(&hold, GAIA_KIND_POINTER, *pointer, bytes, gaia_current_context(driver)))
        return GAIA_CU_SUCCESS;
    driver->cuMemFree_v2(*pointer);
    return GAIA_CU_OUT_OF_MEMORY;
}

/* WIDTH in rows of PITCH bytes, HEIGHT of them; 2^64 - 1 when that is no number any more. */
static uint64_t area(uint64_t pitch, uint64_t height) {
    uint64_t bytes;
    return __builtin_mul_overflow(pitch, height, &bytes) ? UINT64_MAX : bytes;
}

GAIA_EXPORT gaia_cu_result cuMemAllocPitch_v2(gaia_cu_ptr *pointer, size_t *pitch, size_t width,
                                              size_t height, unsigned element) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_hold hold;
    if (!pointer || !pitch || width == 0 || height == 0)
        return driver->cuMemAllocPitch_v2(pointer, pitch, width, height, element);
    /* The pitch is the driver's choice and known only afterwards: rows of 512 bytes is what it uses. */
    uint64_t expected = area(gaia_sum(width, 511) / 512 * 512, height);
    int error = gaia_hold_current(&hold, driver, expected);
    if (error)
        return error;
    error = driver->cuMemAllocPitch_v2(pointer, pitch, width, height, element);
    if (error != GAIA_CU_SUCCESS) {
        gaia_hold_drop(&hold);
        return error;
    }
    uint64_t bytes = area(*pitch, height);
    if (bytes > expected) {
        struct gaia_usage_card *more = gaia_claim(hold.self, hold.card, bytes - expected);
        if (!more) {
            driver->cuMemFree_v2(*pointer);
            gaia_hold_drop(&hold);
            return GAIA_CU_OUT_OF_MEMORY;
        }
        hold.bytes = bytes; /* both announcements end together */
    }
    if (gaia_hold_keep(&hold, GAIA_KIND_POINTER, *pointer, bytes, gaia_current_context(driver)))
        return GAIA_CU_SUCCESS;
    driver->cuMemFree_v2(*pointer);
    return GAIA_CU_OUT_OF_MEMORY;
}

GAIA_EXPORT gaia_cu_result cuMemFree_v2(gaia_cu_ptr pointer) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    /* Taken out before the driver is asked: afterwards another thread may already have been given the
     * same address. Put back if the driver refuses. */
    if (!self || !gaia_table_take(&self->table, GAIA_KIND_POINTER, pointer, &entry))
        return gaia_pool_free(self, driver, pointer); /* stream-ordered, or the driver's to answer */
    int error = driver->cuMemFree_v2(pointer);
    if (error == GAIA_CU_SUCCESS)
        gaia_give_back(entry.card, entry.size);
    else
        gaia_table_put(&self->table, &entry);
    return error;
}

/* The card of the current device, or -1. */
static __attribute__((noinline)) int current_card(struct gaia_process *self,
                                                  const struct gaia_driver *driver) {
    gaia_cu_device device;
    int unknown, count = 0;
    if (driver->cuCtxGetDevice(&device) != GAIA_CU_SUCCESS)
        return -1;
    int card = gaia_card(self, driver, device, &unknown);
    /* A process never sees more devices than at its start. With only one, every context is on it. */
    if (card >= 0 && driver->cuDeviceGetCount(&count) == GAIA_CU_SUCCESS && count == 1)
        atomic_store_explicit(&self->only_card, (uint8_t)(card + 1), memory_order_relaxed);
    return card;
}

GAIA_EXPORT gaia_cu_result cuMemGetInfo_v2(size_t *free, size_t *total) {
    const struct gaia_driver *driver = gaia_driver();
    int card = -1, error = driver->cuMemGetInfo_v2(free, total);
    if (error != GAIA_CU_SUCCESS)
        return error;
    struct gaia_report_view report = {0};
    struct gaia_process *self = gaia_process_enter();
    if (self) {
        /* The driver has answered, so a context is current. Relaxed: see gaia_card_known. */
        card = (int)atomic_load_explicit(&self->only_card, memory_order_relaxed) - 1;
        if (__builtin_expect(card < 0, 0))
            card = current_card(self, driver);
    }
    if (__builtin_expect(card >= 0, 1)) {
        gaia_pools_refresh(self, driver, (unsigned)card);
        gaia_report(self->limits, self->usage, (uint64_t)self->index + 1, (unsigned)card,
                    total ? *total : UINT64_MAX, free ? *free : UINT64_MAX, &report);
    }
    if (free)
        *free = report.free;
    if (total)
        *total = report.total;
    return GAIA_CU_SUCCESS;
}

GAIA_EXPORT gaia_cu_result cuDeviceTotalMem_v2(size_t *bytes, gaia_cu_device device) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuDeviceTotalMem_v2(bytes, device);
    if (error != GAIA_CU_SUCCESS || !bytes)
        return error;
    struct gaia_report_view report = {0};
    struct gaia_process *self = gaia_process_enter();
    if (self) {
        int unknown, card = gaia_card(self, driver, device, &unknown);
        if (card >= 0)
            gaia_report(self->limits, self->usage, (uint64_t)self->index + 1, (unsigned)card, *bytes, *bytes,
                        &report);
    }
    *bytes = report.total;
    return GAIA_CU_SUCCESS;
}
