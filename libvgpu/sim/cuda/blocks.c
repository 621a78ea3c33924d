/*
 * blocks.c - device addresses, found in constant time and costing nothing until touched.
 *
 * One reservation of address space is cut into regions, one per power of two from 512 bytes up;
 * blocks of a size lie one after the other in their region. An address therefore tells its block by
 * arithmetic. Pages of the reservation become real when a copy touches them and are given back when
 * the block is freed.
 */
#define _GNU_SOURCE
#include "cuda.h"
#include <stdlib.h>
#include <sys/mman.h>

#define SMALLEST 9 /* 512 bytes: the alignment that cuMemAlloc promises */
#define CLASSES 40
#define CHUNK 1024 /* descriptors that are made together */

static struct {
    uint64_t fresh; /* blocks ever used */
    struct sim_block *free;
    _Atomic(struct sim_block *) *chunk;
} class[CLASSES];

static uint64_t base;
static unsigned region_bits; /* log2 of a region's size */
static unsigned classes;
static bool backed;
static uint64_t next_id;

static unsigned log2_up(uint64_t n) { return n <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(n - 1); }

bool sim_backed(void) { return backed; }

static uint64_t reserve(uint64_t size, bool writable) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_NONE, flags, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    madvise(p, size, MADV_DONTDUMP);
    madvise(p, size, MADV_NOHUGEPAGE); /* one touched byte should not take 2 MiB */
    return (uint64_t)(uintptr_t)p;
}

/* In a child the reservation is there already, with the parent's bytes in it. */
static void again(void) {
    if (backed)
        madvise((void *)(uintptr_t)base, (uint64_t)classes << region_bits, MADV_DONTNEED);
    for (unsigned i = 0; i < CLASSES; i++) {
        for (uint64_t b = 0; b < class[i].fresh; b++)
            class[i].chunk[b / CHUNK][b % CHUNK].kind = BLOCK_FREE;
        class[i].fresh = 0;
        class[i].free = NULL;
    }
}

bool sim_blocks_start(void) {
    const struct sim_config *c = sim_config();
    uint64_t total = 0, largest = 1 << 20;
    if (base) {
        again();
        return true;
    }
    for (unsigned i = 0; i < c->machine.count; i++) {
        total += c->machine.card[i].memory;
        if (c->machine.card[i].memory > largest)
            largest = c->machine.card[i].memory;
    }
    classes = log2_up(largest) - SMALLEST + 1;
    if (classes > CLASSES)
        return false;
    /* Rounding doubles at most, so a region of twice all memory is never too small. Where so much
     * address space is not to be had (ulimit -v), less is tried. */
    backed = c->backed;
    for (;;) {
        for (region_bits = log2_up(2 * total); region_bits >= SMALLEST + classes - 1; region_bits--) {
            base = reserve((uint64_t)classes << region_bits, backed);
            if (base)
                return true;
        }
        if (!backed)
            return false;
        backed = false; /* no overcommit on this machine: addresses only */
    }
}

static struct sim_block *descriptor(unsigned k, uint64_t index, bool make) {
    if (!class[k].chunk) {
        uint64_t most = (UINT64_C(1) << region_bits) >> (k + SMALLEST);
        if (!make)
            return NULL;
        class[k].chunk = calloc(most / CHUNK + 1, sizeof *class[k].chunk);
        if (!class[k].chunk)
            return NULL;
    }
    struct sim_block *chunk = atomic_load_explicit(&class[k].chunk[index / CHUNK], memory_order_acquire);
    if (!chunk && make) {
        chunk = calloc(CHUNK, sizeof *chunk);
        atomic_store_explicit(&class[k].chunk[index / CHUNK], chunk, memory_order_release);
    }
    return chunk ? &chunk[index % CHUNK] : NULL;
}

struct sim_block *sim_block_take(uint64_t size, enum sim_kind kind) {
    unsigned k = size <= 512 ? 0 : log2_up(size) - SMALLEST;
    struct sim_block *b;
    if (k >= classes)
        return NULL;
    b = class[k].free;
    if (b) {
        class[k].free = b->next;
    } else {
        uint64_t index = class[k].fresh;
        if (index >= (UINT64_C(1) << region_bits) >> (k + SMALLEST))
            return NULL;
        b = descriptor(k, index, true);
        if (!b)
            return NULL;
        class[k].fresh++;
        b->address = base + ((uint64_t)k << region_bits) + (index << (k + SMALLEST));
        b->touched = 0;
    }
    b->size = size;
    b->context = NULL;
    b->pool = NULL;
    b->next = b->previous = NULL;
    b->id = ++next_id;
    atomic_store_explicit(&b->touched, kind == BLOCK_MANAGED,
                          memory_order_relaxed); /* the host writes unseen */
    atomic_store_explicit(&b->kind, kind, memory_order_release);
    return b;
}

bool sim_blocks_contain(CUdeviceptr address) {
    return address >= base && address - base < (uint64_t)classes << region_bits;
}

struct sim_block *sim_block_find(CUdeviceptr address) {
    if (!sim_blocks_contain(address))
        return NULL;
    unsigned k = (unsigned)((address - base) >> region_bits);
    uint64_t offset = (address - base) & ((UINT64_C(1) << region_bits) - 1);
    struct sim_block *b = descriptor(k, offset >> (k + SMALLEST), false);
    if (!b || atomic_load_explicit(&b->kind, memory_order_acquire) == BLOCK_FREE)
        return NULL;
    return address - b->address < b->size ? b : NULL;
}

void sim_block_return(struct sim_block *b) {
    unsigned k = (unsigned)((b->address - base) >> region_bits);
    atomic_store_explicit(&b->kind, BLOCK_FREE, memory_order_release);
    if (backed && atomic_load_explicit(&b->touched, memory_order_relaxed)) {
        /* may take long; nobody finds the block meanwhile, so nobody waits for it either. A block
         * below a page shares its page with others and is left as it is, as a card would. */
        if (b->size >= 4096) {
            sim_unlock();
            madvise((void *)(uintptr_t)b->address, b->size, MADV_DONTNEED);
            sim_lock();
        }
        atomic_store_explicit(&b->touched, 0, memory_order_relaxed);
    }
    b->next = class[k].free;
    class[k].free = b;
}
