/* table.h - what this process holds on the devices: every counted pointer, handle and mapping.
 * 64 shards, each a lock and an open-addressed array that doubles; a look-up costs the same for ten
 * entries and for ten million. Private to the process, empty in a forked child. */
#ifndef GAIA_TABLE_H
#define GAIA_TABLE_H

#include "core/lock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GAIA_SHARDS 64

/* What a key is. Keys of different families never meet, whatever their numbers. */
enum gaia_kind {
    GAIA_KIND_NONE = 0,
    GAIA_KIND_POINTER,      /* device memory of one call; link = its context */
    GAIA_KIND_ARRAY,        /* array or mipmapped array; link = its context */
    GAIA_KIND_HANDLE,       /* cuMemCreate; link = references << 32 | mappings */
    GAIA_KIND_ALIAS,        /* another handle for the same memory; link = the first one */
    GAIA_KIND_MAPPING,      /* address of a cuMemMap; link = the handle */
    GAIA_KIND_CONTEXT,      /* context made by cuCtxCreate or as a green context */
    GAIA_KIND_POOL_POINTER, /* stream-ordered memory; charged through its pool; link = the pool */
};

struct gaia_entry {
    uint64_t key;
    uint64_t size;
    uint64_t link;
    uint32_t count; /* further references to an alias */
    uint8_t card;   /* index in `limits` */
    uint8_t kind;   /* enum gaia_kind; GAIA_KIND_NONE = empty */
    uint8_t spare[2];
};

struct gaia_shard {
    gaia_lock lock;
    uint32_t used, capacity; /* capacity: 0 or a power of two */
    struct gaia_entry *entry;
} __attribute__((aligned(64))); /* two threads in two shards must not share a line */

struct gaia_table {
    struct gaia_shard shard[GAIA_SHARDS];
};

/* Add an entry (kind and key must not be there yet). False when there is no memory for it. */
bool gaia_table_put(struct gaia_table *table, const struct gaia_entry *entry);

/* Take an entry out. False when it is not there. */
bool gaia_table_take(struct gaia_table *table, enum gaia_kind kind, uint64_t key, struct gaia_entry *entry);

/* Copy an entry. */
bool gaia_table_find(struct gaia_table *table, enum gaia_kind kind, uint64_t key, struct gaia_entry *entry);

/* Change an entry's link by LINK_DELTA (wrapping) and its count by COUNT_DELTA; the result is copied to
 * *entry, and the entry is removed when DROP of the result says so. False when it is not there. */
bool gaia_table_change(struct gaia_table *table, enum gaia_kind kind, uint64_t key, uint64_t link_delta,
                       uint32_t count_delta, bool (*drop)(const struct gaia_entry *),
                       struct gaia_entry *entry);

/* Visit all entries; those for which VISIT answers true are removed. VISIT must not touch the table. */
void gaia_table_walk(struct gaia_table *table, bool (*visit)(const struct gaia_entry *, void *),
                     void *argument);

#endif
