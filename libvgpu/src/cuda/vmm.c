/* vmm.c - physical memory by handle (cuMemCreate). It is taken by cuMemCreate alone, and given back when
 * the last reference is released *and* the last mapping is gone: taking it off at cuMemRelease would
 * make create + map + release a way round the limit. References and mappings share one word so that
 * they change together. */
#include "cuda/hook.h"

#define REFERENCE (UINT64_C(1) << 32)
#define MAPPING UINT64_C(1)
#define GRANULE (UINT64_C(2) << 20)

static bool nothing_left(const struct gaia_entry *entry) { return entry->link == 0; }
static bool no_count_left(const struct gaia_entry *entry) { return entry->count == 0; }

/* Change the references or mappings of HANDLE, or of the handle it is another name of. *entry holds the
 * result. False: not ours (imported, or made behind our back). */
static bool change(struct gaia_process *self, uint64_t handle, uint64_t delta, struct gaia_entry *entry) {
    struct gaia_entry alias;
    if (gaia_table_change(&self->table, GAIA_KIND_HANDLE, handle, delta, 0, nothing_left, entry))
        return true;
    return gaia_table_find(&self->table, GAIA_KIND_ALIAS, handle, &alias) &&
           gaia_table_change(&self->table, GAIA_KIND_HANDLE, alias.link, delta, 0, nothing_left, entry);
}

/* Undo a change that the driver did not follow; the entry may have been dropped by it. */
static void change_back(struct gaia_process *self, struct gaia_entry entry, uint64_t delta) {
    struct gaia_entry now;
    if (gaia_table_change(&self->table, GAIA_KIND_HANDLE, entry.key, -delta, 0, nothing_left, &now))
        return;
    entry.link -= delta;
    gaia_table_put(&self->table, &entry);
}

static void settle(const struct gaia_entry *entry) {
    if (entry->link == 0)
        gaia_give_back(entry->card, entry->size);
}

GAIA_EXPORT gaia_cu_result cuMemCreate(gaia_cu_handle *handle, size_t bytes,
                                       const gaia_cu_allocation_prop *prop, uint64_t flags) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_hold hold;
    if (!handle || !prop || bytes == 0 || prop->location.type != GAIA_CU_LOCATION_DEVICE)
        return driver->cuMemCreate(handle, bytes, prop, flags); /* the host's, or the driver's to refuse */
    int error = gaia_hold_device(&hold, driver, prop->location.id, bytes);
    if (error)
        return error;
    error = driver->cuMemCreate(handle, bytes, prop, flags);
    if (error != GAIA_CU_SUCCESS) {
        gaia_hold_drop(&hold);
        return error;
    }
    if (gaia_hold_keep(&hold, GAIA_KIND_HANDLE, *handle, bytes, REFERENCE))
        return GAIA_CU_SUCCESS;
    driver->cuMemRelease(*handle);
    return GAIA_CU_OUT_OF_MEMORY;
}

/* Written down before the driver is asked: afterwards the same number may be another thread's handle. */
GAIA_EXPORT gaia_cu_result cuMemRelease(gaia_cu_handle handle) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry, alias;
    if (!self || !change(self, handle, -REFERENCE, &entry))
        return driver->cuMemRelease(handle);
    int error = driver->cuMemRelease(handle);
    if (error != GAIA_CU_SUCCESS) {
        change_back(self, entry, -REFERENCE);
        return error;
    }
    gaia_table_change(&self->table, GAIA_KIND_ALIAS, handle, 0, (uint32_t)-1, no_count_left, &alias);
    settle(&entry);
    return error;
}

/* The mapping that ADDRESS lies in; it need not be its start. */
static bool mapping_of(struct gaia_process *self, uint64_t address, struct gaia_entry *mapping) {
    if (gaia_table_find(&self->table, GAIA_KIND_MAPPING, address, mapping))
        return true;
    for (uint64_t start = address / GRANULE * GRANULE, steps = 0; start != 0 && steps < 1u << 20; steps++) {
        if (gaia_table_find(&self->table, GAIA_KIND_MAPPING, start, mapping))
            return address - start < mapping->size;
        start -= GRANULE;
    }
    return false;
}

GAIA_EXPORT gaia_cu_result cuMemRetainAllocationHandle(gaia_cu_handle *handle, void *address) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry, mapping;
    int error = driver->cuMemRetainAllocationHandle(handle, address);
    if (error != GAIA_CU_SUCCESS || !self || !handle)
        return error;
    if (gaia_table_change(&self->table, GAIA_KIND_HANDLE, *handle, REFERENCE, 0, nothing_left, &entry))
        return error;
    /* Another name for memory that we know by its mapping? */
    if (!mapping_of(self, (uint64_t)(uintptr_t)address, &mapping) ||
        !gaia_table_change(&self->table, GAIA_KIND_HANDLE, mapping.link, REFERENCE, 0, nothing_left, &entry))
        return error;
    if (!gaia_table_change(&self->table, GAIA_KIND_ALIAS, *handle, 0, 1, no_count_left, &mapping)) {
        struct gaia_entry alias = {.key = *handle, .link = entry.key, .count = 1, .kind = GAIA_KIND_ALIAS};
        gaia_table_put(&self->table, &alias); /* failing, the memory stays charged: never too little */
    }
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemImportFromShareableHandle(gaia_cu_handle *handle, void *os_handle, int type) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    int error = driver->cuMemImportFromShareableHandle(handle, os_handle, type);
    /* What another process exported is its to pay. Our own, come back by the same name, has one more
     * reference. */
    if (error == GAIA_CU_SUCCESS && self && handle)
        change(self, *handle, REFERENCE, &entry);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemMap(gaia_cu_ptr address, size_t bytes, size_t offset, gaia_cu_handle handle,
                                    uint64_t flags) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    if (!self)
        return driver->cuMemMap(address, bytes, offset, handle, flags);
    /* Before the call, or a release in another thread could find neither reference nor mapping. */
    bool known = change(self, handle, MAPPING, &entry);
    int error = driver->cuMemMap(address, bytes, offset, handle, flags);
    if (error != GAIA_CU_SUCCESS) {
        if (known && change(self, entry.key, -MAPPING, &entry))
            settle(&entry);
        return error;
    }
    /* Foreign handles too, so that an unmap of several mappings can step over them. */
    struct gaia_entry mapping = {
        .key = address, .size = bytes, .link = known ? entry.key : handle, .kind = GAIA_KIND_MAPPING};
    gaia_table_put(&self->table, &mapping);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemUnmap(gaia_cu_ptr address, size_t bytes) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry mapping, entry;
    int error = driver->cuMemUnmap(address, bytes);
    if (error != GAIA_CU_SUCCESS || !self)
        return error;
    for (uint64_t at = address, end = gaia_sum(address, bytes); at < end;) {
        if (!gaia_table_take(&self->table, GAIA_KIND_MAPPING, at, &mapping)) {
            at = gaia_sum(at, GRANULE);
            continue;
        }
        if (change(self, mapping.link, -MAPPING, &entry))
            settle(&entry);
        at = gaia_sum(at, mapping.size ? mapping.size : GRANULE);
    }
    return error;
}

/* Parts of sparse arrays backed by a handle. Which mapping an unmap ends cannot be told from its
 * arguments, so a handle used this way stays charged until the process ends. */
static void pin(struct gaia_process *self, const gaia_cu_map_info *list, unsigned count) {
    struct gaia_entry entry;
    for (unsigned i = 0; i < count; i++)
        if (list[i].operation == GAIA_CU_OPERATION_MAP)
            change(self, list[i].handle, MAPPING, &entry);
}

GAIA_EXPORT gaia_cu_result cuMemMapArrayAsync(gaia_cu_map_info *list, unsigned count, gaia_cu_object stream) {
    int error = gaia_driver()->cuMemMapArrayAsync(list, count, stream);
    if (error == GAIA_CU_SUCCESS && gaia_process_known())
        pin(gaia_process_known(), list, count);
    return error;
}

GAIA_EXPORT gaia_cu_result cuMemMapArrayAsync_ptsz(gaia_cu_map_info *list, unsigned count,
                                                   gaia_cu_object stream) {
    int error = gaia_driver()->cuMemMapArrayAsync_ptsz(list, count, stream);
    if (error == GAIA_CU_SUCCESS && gaia_process_known())
        pin(gaia_process_known(), list, count);
    return error;
}
