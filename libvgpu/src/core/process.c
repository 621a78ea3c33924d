#include "core/process.h"
#include "core/register.h"

_Atomic(struct gaia_process *) gaia_self;

struct gaia_process *gaia_process_state(void) {
    struct gaia_process *self = atomic_load_explicit(&gaia_self, memory_order_acquire);
    if (self)
        return self;
    self = gaia_prim_memory_wiped_on_fork(sizeof *self);
    struct gaia_process *first = NULL;
    /* Two threads may come here together: the loser drops its own. Release publishes the zeroes. */
    if (self && !atomic_compare_exchange_strong_explicit(&gaia_self, &first, self, memory_order_acq_rel,
                                                         memory_order_acquire)) {
        gaia_prim_unmap(self, sizeof *self);
        self = first;
    }
    return self;
}

/* What this process holds on each card, from its own books: for a usage page that lost our words. */
struct totals {
    uint64_t used[GAIA_CARDS];
};

static bool add_up(const struct gaia_entry *entry, void *argument) {
    struct totals *totals = argument;
    if (entry->kind == GAIA_KIND_POINTER || entry->kind == GAIA_KIND_ARRAY || entry->kind == GAIA_KIND_HANDLE)
        totals->used[entry->card] += entry->size;
    return false;
}

static void restore_words(struct gaia_process *self, struct gaia_usage_process *place) {
    struct totals totals = {{0}};
    gaia_table_walk(&self->table, add_up, &totals);
    gaia_lock_take(&self->pooling);
    for (int i = 0; i < GAIA_POOLS; i++)
        if (self->pool[i].handle && self->pool[i].counted)
            totals.used[self->pool[i].card] += self->pool[i].charge;
    for (int card = 0; card < GAIA_CARDS; card++)
        totals.used[card] += self->graph_charge[card];
    gaia_lock_drop(&self->pooling);
    for (int card = 0; card < GAIA_CARDS; card++) {
        gaia_put(&place->card[card].used, totals.used[card]);
        gaia_put(&place->card[card].context,
                 atomic_load_explicit(&self->contexts[card], memory_order_relaxed));
    }
}

static void forget_pages(struct gaia_process *self) {
    /* The old maps stay: another thread may be reading them this very moment. */
    atomic_store_explicit(&self->place, NULL, memory_order_release);
    atomic_store_explicit(&self->only_card, 0, memory_order_relaxed);
    atomic_store_explicit(&self->meter.gate, NULL, memory_order_relaxed); /* it may be in the old map */
    for (int i = 0; i < GAIA_DEVICES; i++)
        atomic_store_explicit(&self->card_of_device[i], 0, memory_order_relaxed);
}

static bool ours(const struct gaia_process *self, struct gaia_usage_process *place) {
    return gaia_read(&place->owner) == self->identity.owner;
}

static bool attach(struct gaia_process *self) {
    struct gaia_pages pages = {0};
    if (!gaia_pages_open(&pages, true))
        return false;
    struct gaia_usage_process *kept = NULL;
    bool same_usage = self->usage && pages.usage_file.device == self->pages.usage_file.device &&
                      pages.usage_file.inode == self->pages.usage_file.inode;
    if (same_usage && ours(self, &pages.usage->process[self->index]))
        kept = &pages.usage->process[self->index];
    else if (!gaia_register(pages.usage, &self->identity, &self->index)) {
        gaia_prim_unmap((void *)pages.limits, sizeof *pages.limits);
        gaia_prim_unmap(pages.usage, sizeof *pages.usage);
        return false;
    }
    self->pages = pages;
    self->limits = pages.limits;
    self->usage = pages.usage;
    struct gaia_usage_process *place = &pages.usage->process[self->index];
    if (!kept)
        restore_words(self, place);
    atomic_store_explicit(&self->asked_ns, gaia_prim_stamp(), memory_order_relaxed);
    /* Release: whoever sees the place sees the maps and the restored words. */
    atomic_store_explicit(&self->place, place, memory_order_release);
    return true;
}

struct gaia_process *gaia_process_enter_slow(void) {
    struct gaia_process *self = gaia_process_state();
    if (!self)
        return NULL;
    gaia_lock_take(&self->registering);
    struct gaia_usage_process *place = gaia_process_place(self);
    if (place) {
        if (gaia_pages_ask(&self->pages) == GAIA_PAGES_SAME && ours(self, place))
            atomic_store_explicit(&self->asked_ns, gaia_prim_stamp(), memory_order_relaxed);
        else {
            forget_pages(self);
            place = NULL;
        }
    }
    bool good = place != NULL || attach(self);
    gaia_lock_drop(&self->registering);
    return good ? self : NULL;
}
