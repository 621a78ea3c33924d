/* context.c - a context takes some hundred MiB of its card that no call asks for. It is charged when it
 * is made (by the constant of the limits page, until the agent has measured it), and everything allocated
 * in it vanishes with it. `making` keeps the driver's state and our count in step. */
#include "cuda/meter.h"

#define FOUND (UINT64_C(1) << 63) /* primary context that somebody else keeps, through a private table */

static void add_context(struct gaia_process *self, struct gaia_usage_process *place, unsigned card, int by) {
    uint32_t now =
        atomic_fetch_add_explicit(&self->contexts[card], (uint32_t)by, memory_order_relaxed) + (uint32_t)by;
    if (place)
        gaia_publish(&place->card[card].context, now);
}

static struct gaia_usage_card *claim_context(struct gaia_process *self, unsigned card, uint64_t *bytes) {
    *bytes = gaia_read(&self->limits->card[card].context_bytes);
    /* A limit of 0 grants nothing, not even a context that is said to cost nothing. */
    if (gaia_read(&self->limits->card[card].memory_limit) == 0)
        return NULL;
    return gaia_claim(self, card, *bytes);
}

/* The announcement ends only after the context word stands, so that the bytes are in the sum throughout. */
static void keep_context(struct gaia_process *self, struct gaia_usage_card *words, unsigned card,
                         uint64_t bytes) {
    add_context(self, gaia_process_place(self), card, 1);
    gaia_settle(words, bytes, 0);
}

bool gaia_context_found(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                        unsigned card) {
    uint64_t bytes;
    bool fits = true;
    gaia_lock_take(&self->making);
    if (atomic_load_explicit(&self->contexts[card], memory_order_relaxed) == 0) {
        struct gaia_usage_card *words = claim_context(self, card, &bytes);
        fits = words != NULL;
        if (fits) {
            keep_context(self, words, card, bytes);
            if ((unsigned)device < GAIA_DEVICES)
                atomic_fetch_or_explicit(&self->primary[device], FOUND, memory_order_relaxed);
        }
    }
    gaia_lock_drop(&self->making);
    return fits;
}

struct dropping {
    uint64_t context, bytes;
    unsigned card;
    bool all;
};

static bool belongs(const struct gaia_entry *entry, void *argument) {
    struct dropping *what = argument;
    bool gone = (entry->kind == GAIA_KIND_POINTER || entry->kind == GAIA_KIND_ARRAY) &&
                entry->card == what->card && (what->all || entry->link == what->context);
    if (gone)
        what->bytes += entry->size;
    return gone;
}

/* CONTEXT on CARD has ended. With the last one everything goes that was not asked for by handle, also
 * what was allocated under another name of the same context (a green one). */
static void context_ended(struct gaia_process *self, unsigned card, uint64_t context, bool counted) {
    if (counted)
        add_context(self, gaia_process_place(self), card, -1);
    struct dropping what = {.context = context, .card = card};
    what.all = atomic_load_explicit(&self->contexts[card], memory_order_relaxed) == 0;
    gaia_table_walk(&self->table, belongs, &what);
    /* Not gaia_give_back: mapping pages anew takes locks that must not be taken under `making`. */
    gaia_uncharge(self, card, what.bytes);
}

/* ---- the primary context ------------------------------------------------------------------ */

static uint64_t primary(struct gaia_process *self, gaia_cu_device device) {
    return (unsigned)device < GAIA_DEVICES
               ? atomic_load_explicit(&self->primary[device], memory_order_relaxed)
               : FOUND;
}

static void set_primary(struct gaia_process *self, gaia_cu_device device, uint64_t value) {
    if ((unsigned)device < GAIA_DEVICES)
        atomic_store_explicit(&self->primary[device], value, memory_order_relaxed);
}

/* Asks for the primary context of DEVICE. With `making` held; charges it when it is the first time. */
static int retain_primary(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                          int (*call)(const struct gaia_driver *, void *), void *argument) {
    uint64_t bytes = 0;
    struct gaia_usage_card *words = NULL;
    int unknown, card = gaia_card(self, driver, device, &unknown);
    if (card < 0)
        return unknown ? call(driver, argument) : GAIA_CU_OUT_OF_MEMORY;
    bool first = primary(self, device) == 0;
    if (first && !(words = claim_context(self, (unsigned)card, &bytes)))
        return GAIA_CU_OUT_OF_MEMORY;
    int error = call(driver, argument);
    if (error == GAIA_CU_SUCCESS) {
        if (first)
            keep_context(self, words, (unsigned)card, bytes);
        set_primary(self, device, primary(self, device) + 1);
    } else if (first)
        gaia_settle(words, bytes, 0);
    return error;
}

/* After a call that may have ended the primary context of DEVICE. With `making` held. */
static void primary_may_have_ended(struct gaia_process *self, const struct gaia_driver *driver,
                                   gaia_cu_device device, bool reset) {
    unsigned flags;
    int unknown, active = 0;
    uint64_t refs = primary(self, device);
    int card = gaia_card(self, driver, device, &unknown);
    if (card < 0 || refs == 0)
        return;
    if (driver->cuDevicePrimaryCtxGetState(device, &flags, &active) != GAIA_CU_SUCCESS)
        active = refs > 1 && !reset; /* cannot be asked: by our own count */
    if (active) {
        if (reset) /* whoever retained it still does, but its memory is gone */
            context_ended(self, (unsigned)card, self->primary_handle[(unsigned)device % GAIA_DEVICES], false);
        else
            set_primary(self, device, refs & ~FOUND ? refs - 1 : refs);
        return;
    }
    set_primary(self, device, 0);
    context_ended(self, (unsigned)card, self->primary_handle[(unsigned)device % GAIA_DEVICES], true);
}

struct retain {
    gaia_cu_object *context;
    gaia_cu_device device;
};
static int call_retain(const struct gaia_driver *driver, void *argument) {
    struct retain *r = argument;
    return driver->cuDevicePrimaryCtxRetain(r->context, r->device);
}

GAIA_EXPORT gaia_cu_result cuDevicePrimaryCtxRetain(gaia_cu_object *context, gaia_cu_device device) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_enter();
    if (!self)
        return GAIA_CU_OUT_OF_MEMORY;
    struct retain r = {context, device};
    gaia_lock_take(&self->making);
    int error = retain_primary(self, driver, device, call_retain, &r);
    if (error == GAIA_CU_SUCCESS && (unsigned)device < GAIA_DEVICES)
        self->primary_handle[device] = (uint64_t)(uintptr_t)*context;
    gaia_lock_drop(&self->making);
    return error;
}

static int end_primary(gaia_cu_device device, gaia_cu_result (*call)(gaia_cu_device), bool reset) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    if (!self)
        return call(device);
    gaia_process_enter(); /* before the lock: a page that changed is mapped anew now, not in between */
    gaia_meter_context_ends((gaia_cu_object)(uintptr_t)self->primary_handle[(unsigned)device % GAIA_DEVICES]);
    gaia_lock_take(&self->making);
    int error = call(device);
    if (error == GAIA_CU_SUCCESS && gaia_process_place(self))
        primary_may_have_ended(self, driver, device, reset);
    gaia_lock_drop(&self->making);
    return error;
}

GAIA_EXPORT gaia_cu_result cuDevicePrimaryCtxRelease(gaia_cu_device device) {
    return end_primary(device, gaia_driver()->cuDevicePrimaryCtxRelease, false);
}
GAIA_EXPORT gaia_cu_result cuDevicePrimaryCtxRelease_v2(gaia_cu_device device) {
    return end_primary(device, gaia_driver()->cuDevicePrimaryCtxRelease_v2, false);
}
GAIA_EXPORT gaia_cu_result cuDevicePrimaryCtxReset(gaia_cu_device device) {
    return end_primary(device, gaia_driver()->cuDevicePrimaryCtxReset, true);
}
GAIA_EXPORT gaia_cu_result cuDevicePrimaryCtxReset_v2(gaia_cu_device device) {
    return end_primary(device, gaia_driver()->cuDevicePrimaryCtxReset_v2, true);
}

/* ---- contexts of their own, and green ones -------------------------------------------------- */

struct create {
    gaia_cu_object *context;
    void *params;
    int count;
    unsigned flags;
    gaia_cu_device device;
    int version;
};

static int call_create(const struct gaia_driver *driver, void *argument) {
    struct create *c = argument;
    switch (c->version) {
    case 1:
        return driver->cuCtxCreate(c->context, c->flags, c->device);
    case 2:
        return driver->cuCtxCreate_v2(c->context, c->flags, c->device);
    case 3:
        return driver->cuCtxCreate_v3(c->context, c->params, c->count, c->flags, c->device);
    case 4:
        return driver->cuCtxCreate_v4(c->context, c->params, c->flags, c->device);
    default:
        return driver->cuGreenCtxCreate(c->context, c->params, c->device, c->flags);
    }
}

static void remember(struct gaia_process *self, const struct create *c, int card) {
    struct gaia_entry entry = {.key = (uint64_t)(uintptr_t)*c->context,
                               .count = (uint32_t)c->device,
                               .card = (uint8_t)card,
                               .kind = GAIA_KIND_CONTEXT,
                               .link = (uint64_t)c->version};
    gaia_table_put(&self->table, &entry); /* without memory for it the charge stays: never too little */
}

static int create(const struct create *c) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_hold hold = {.self = gaia_process_enter()};
    if (!hold.self)
        return GAIA_CU_OUT_OF_MEMORY;
    int unknown, card = gaia_card(hold.self, driver, c->device, &unknown);
    if (card < 0)
        return unknown ? call_create(driver, (void *)c) : GAIA_CU_OUT_OF_MEMORY;
    gaia_lock_take(&hold.self->making);
    hold.words = claim_context(hold.self, (unsigned)card, &hold.bytes);
    int error = hold.words ? call_create(driver, (void *)c) : GAIA_CU_OUT_OF_MEMORY;
    if (hold.words && error == GAIA_CU_SUCCESS) {
        keep_context(hold.self, hold.words, (unsigned)card, hold.bytes);
        remember(hold.self, c, card);
    } else if (hold.words)
        gaia_settle(hold.words, hold.bytes, 0);
    gaia_lock_drop(&hold.self->making);
    return error;
}

GAIA_EXPORT gaia_cu_result cuCtxCreate(gaia_cu_object *context, unsigned flags, gaia_cu_device device) {
    return create(&(struct create){context, NULL, 0, flags, device, 1});
}
GAIA_EXPORT gaia_cu_result cuCtxCreate_v2(gaia_cu_object *context, unsigned flags, gaia_cu_device device) {
    return create(&(struct create){context, NULL, 0, flags, device, 2});
}
GAIA_EXPORT gaia_cu_result cuCtxCreate_v3(gaia_cu_object *context, void *affinity, int count, unsigned flags,
                                          gaia_cu_device device) {
    return create(&(struct create){context, affinity, count, flags, device, 3});
}
GAIA_EXPORT gaia_cu_result cuCtxCreate_v4(gaia_cu_object *context, void *params, unsigned flags,
                                          gaia_cu_device device) {
    return create(&(struct create){context, params, 0, flags, device, 4});
}

static int destroy(gaia_cu_object context, gaia_cu_result (*call)(gaia_cu_object)) {
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    if (!self)
        return call(context);
    gaia_process_enter();
    gaia_meter_context_ends(context);
    gaia_lock_take(&self->making);
    bool known = gaia_table_take(&self->table, GAIA_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &entry);
    int error = call(context);
    if (known && error == GAIA_CU_SUCCESS)
        context_ended(self, entry.card, entry.key, true);
    else if (known)
        gaia_table_put(&self->table, &entry);
    gaia_lock_drop(&self->making);
    return error;
}

GAIA_EXPORT gaia_cu_result cuCtxDestroy(gaia_cu_object context) {
    return destroy(context, gaia_driver()->cuCtxDestroy);
}
GAIA_EXPORT gaia_cu_result cuCtxDestroy_v2(gaia_cu_object context) {
    return destroy(context, gaia_driver()->cuCtxDestroy_v2);
}

/* A green context shares the memory of the primary one and keeps it alive. */
GAIA_EXPORT gaia_cu_result cuGreenCtxCreate(gaia_cu_object *context, void *resources, gaia_cu_device device,
                                            unsigned flags) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_enter();
    if (!self)
        return GAIA_CU_OUT_OF_MEMORY;
    struct create c = {context, resources, 0, flags, device, 5};
    gaia_lock_take(&self->making);
    int unknown, error = retain_primary(self, driver, device, call_create, &c);
    if (error == GAIA_CU_SUCCESS)
        remember(self, &c, gaia_card(self, driver, device, &unknown));
    gaia_lock_drop(&self->making);
    return error;
}

GAIA_EXPORT gaia_cu_result cuGreenCtxDestroy(gaia_cu_object context) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    if (!self)
        return driver->cuGreenCtxDestroy(context);
    gaia_process_enter();
    gaia_meter_context_ends(context);
    gaia_lock_take(&self->making);
    bool known = gaia_table_take(&self->table, GAIA_KIND_CONTEXT, (uint64_t)(uintptr_t)context, &entry);
    int error = driver->cuGreenCtxDestroy(context);
    if (known && error == GAIA_CU_SUCCESS && gaia_process_place(self))
        primary_may_have_ended(self, driver, (gaia_cu_device)entry.count, false);
    else if (known)
        gaia_table_put(&self->table, &entry);
    gaia_lock_drop(&self->making);
    return error;
}
