#include "core/table.h"
#include "core/prim.h"

enum { FIRST_CAPACITY = 128 };

static inline uint64_t hash(enum gaia_kind kind, uint64_t key) {
    /* Pointers differ in the middle bits (granules of 512 bytes or 2 MiB); the multiplication carries
     * them to the top, from where shard and slot are taken. */
    return (key ^ (uint64_t)kind << 56) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline struct gaia_shard *shard_of(struct gaia_table *table, uint64_t h) {
    return &table->shard[h >> 58];
}

static inline uint32_t home(const struct gaia_shard *shard, uint64_t h) {
    return (uint32_t)(h >> 26) & (shard->capacity - 1);
}

static inline bool same(const struct gaia_entry *entry, enum gaia_kind kind, uint64_t key) {
    return entry->key == key && entry->kind == kind;
}

static struct gaia_entry *look_up(struct gaia_shard *shard, enum gaia_kind kind, uint64_t key, uint64_t h) {
    if (shard->capacity == 0)
        return NULL;
    for (uint32_t i = home(shard, h);; i = (i + 1) & (shard->capacity - 1)) {
        struct gaia_entry *entry = &shard->entry[i];
        if (same(entry, kind, key))
            return entry;
        if (entry->kind == GAIA_KIND_NONE) /* a quarter is always empty: this ends */
            return NULL;
    }
}

static void place(struct gaia_shard *shard, const struct gaia_entry *entry) {
    uint32_t i = home(shard, hash(entry->kind, entry->key));
    while (shard->entry[i].kind != GAIA_KIND_NONE)
        i = (i + 1) & (shard->capacity - 1);
    shard->entry[i] = *entry;
    shard->used++;
}

static bool grow(struct gaia_shard *shard) {
    struct gaia_shard bigger = {.capacity = shard->capacity ? shard->capacity * 2 : FIRST_CAPACITY};
    if (bigger.capacity == 0)
        return false;
    bigger.entry = gaia_prim_memory((size_t)bigger.capacity * sizeof *bigger.entry);
    if (!bigger.entry)
        return false;
    for (uint32_t i = 0; i < shard->capacity; i++)
        if (shard->entry[i].kind != GAIA_KIND_NONE)
            place(&bigger, &shard->entry[i]);
    if (shard->entry)
        gaia_prim_unmap(shard->entry, (size_t)shard->capacity * sizeof *shard->entry);
    shard->capacity = bigger.capacity;
    shard->entry = bigger.entry;
    return true;
}

/* Close the hole instead of leaving a mark in it: a table that lives for weeks would fill up with
 * marks and every look-up would walk over them. */
static void remove_at(struct gaia_shard *shard, struct gaia_entry *entry) {
    uint32_t mask = shard->capacity - 1, hole = (uint32_t)(entry - shard->entry);
    for (uint32_t i = (hole + 1) & mask; shard->entry[i].kind != GAIA_KIND_NONE; i = (i + 1) & mask) {
        uint32_t wanted = home(shard, hash(shard->entry[i].kind, shard->entry[i].key));
        /* may move back only when its home does not lie behind the hole, counted round the array */
        if (((i - wanted) & mask) >= ((i - hole) & mask)) {
            shard->entry[hole] = shard->entry[i];
            hole = i;
        }
    }
    shard->entry[hole] = (struct gaia_entry){0};
    shard->used--;
}

bool gaia_table_put(struct gaia_table *table, const struct gaia_entry *entry) {
    struct gaia_shard *shard = shard_of(table, hash(entry->kind, entry->key));
    gaia_lock_take(&shard->lock);
    bool room = shard->used < shard->capacity / 4 * 3 || grow(shard);
    if (room)
        place(shard, entry);
    gaia_lock_drop(&shard->lock);
    return room;
}

bool gaia_table_take(struct gaia_table *table, enum gaia_kind kind, uint64_t key, struct gaia_entry *entry) {
    uint64_t h = hash(kind, key);
    struct gaia_shard *shard = shard_of(table, h);
    gaia_lock_take(&shard->lock);
    struct gaia_entry *found = look_up(shard, kind, key, h);
    if (found) {
        *entry = *found;
        remove_at(shard, found);
    }
    gaia_lock_drop(&shard->lock);
    return found != NULL;
}

bool gaia_table_find(struct gaia_table *table, enum gaia_kind kind, uint64_t key, struct gaia_entry *entry) {
    uint64_t h = hash(kind, key);
    struct gaia_shard *shard = shard_of(table, h);
    gaia_lock_take(&shard->lock);
    struct gaia_entry *found = look_up(shard, kind, key, h);
    if (found)
        *entry = *found;
    gaia_lock_drop(&shard->lock);
    return found != NULL;
}

bool gaia_table_change(struct gaia_table *table, enum gaia_kind kind, uint64_t key, uint64_t link_delta,
                       uint32_t count_delta, bool (*drop)(const struct gaia_entry *),
                       struct gaia_entry *entry) {
    uint64_t h = hash(kind, key);
    struct gaia_shard *shard = shard_of(table, h);
    gaia_lock_take(&shard->lock);
    struct gaia_entry *found = look_up(shard, kind, key, h);
    if (found) {
        found->link += link_delta;
        found->count += count_delta;
        *entry = *found;
        if (drop(found))
            remove_at(shard, found);
    }
    gaia_lock_drop(&shard->lock);
    return found != NULL;
}

void gaia_table_walk(struct gaia_table *table, bool (*visit)(const struct gaia_entry *, void *),
                     void *argument) {
    for (int s = 0; s < GAIA_SHARDS; s++) {
        struct gaia_shard *shard = &table->shard[s];
        gaia_lock_take(&shard->lock);
        for (uint32_t i = 0; i < shard->capacity;)
            if (shard->entry[i].kind != GAIA_KIND_NONE && visit(&shard->entry[i], argument))
                remove_at(shard, &shard->entry[i]); /* another may have moved in: look at I again */
            else
                i++;
        gaia_lock_drop(&shard->lock);
    }
}
