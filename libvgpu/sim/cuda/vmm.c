/*
 * vmm.c - virtual memory management: handles with references and mappings, freed when both are 0.
 *
 * Mappings of one handle must show the same bytes, so the bytes lie in one sparse file in memory,
 * each handle at an offset of its own. Pages become real when they are touched.
 */
#define _GNU_SOURCE
#include "cuda.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE (UINT64_C(2) << 20)

struct handle {
    uint64_t id;
    uint64_t size, offset;
    int device;
    int handle_types;
    bool host;
    unsigned references, mappings;
    struct handle *next;
};

struct mapping {
    CUdeviceptr at;
    uint64_t size;
    struct handle *handle;
    uint32_t access; /* bit per device */
    struct mapping *next;
};

struct range {
    CUdeviceptr at;
    uint64_t size;
    struct mapping *mappings;
    struct range *next;
};

static struct handle *handles; /* all three under the lock */
static struct range *ranges;
static uint64_t next_handle = UINT64_C(0x5600000000000001), next_offset;
static int file = -1;

void sim_vmm_forget(void) {
    handles = NULL;
    for (; ranges; ranges = ranges->next) /* a parent's: the bytes are its, too */
        munmap((void *)(uintptr_t)ranges->at, ranges->size);
    if (file >= 0)
        close(file);
    file = -1;
    next_offset = 0;
}

static struct handle *handle_of(uint64_t id) {
    for (struct handle *h = handles; h; h = h->next)
        if (h->id == id)
            return h;
    return NULL;
}

static struct range *range_of(CUdeviceptr at) {
    for (struct range *r = ranges; r; r = r->next)
        if (at - r->at < r->size)
            return r;
    return NULL;
}

static struct mapping *mapping_of(struct range *r, CUdeviceptr at) {
    for (struct mapping *m = r ? r->mappings : NULL; m; m = m->next)
        if (at - m->at < m->size)
            return m;
    return NULL;
}

bool sim_vmm_find(CUdeviceptr address, CUdeviceptr *start, uint64_t *size, int *device) {
    sim_lock();
    struct mapping *m = mapping_of(range_of(address), address);
    if (m) {
        *start = m->at;
        *size = m->size;
        *device = m->handle->device;
    }
    sim_unlock();
    return m != NULL;
}

bool sim_vmm_reserved(CUdeviceptr address) {
    if (!ranges)
        return false;
    sim_lock();
    bool in = range_of(address) != NULL;
    sim_unlock();
    return in;
}

static void settle(struct handle *h) {
    if (h->references || h->mappings)
        return;
    if (!h->host)
        sim_give(sim_here->process, sim_devices[h->device].card, h->size);
    if (file >= 0)
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)h->offset, (off_t)h->size);
    for (struct handle **p = &handles; *p; p = &(*p)->next)
        if (*p == h) {
            *p = h->next;
            break;
        }
    free(h);
}

struct allocation_properties {
    int type, handle_types;
    CUmemLocation location;
    void *security;
    unsigned char flags[8];
};

ENTRY cuMemGetAllocationGranularity(size_t *out, const struct allocation_properties *properties, int option) {
    READY();
    if (!out || !properties || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *out = GRANULE;
    return CUDA_SUCCESS;
}

ENTRY cuMemCreate(uint64_t *out, size_t n, const struct allocation_properties *properties,
                  unsigned long long flags) {
    READY();
    if (!out || !properties || flags || n == 0 || n % GRANULE || properties->type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    bool host = properties->location.type >= AT_HOST && properties->location.type <= AT_HOST_NUMA_CURRENT;
    if (!host && properties->location.type != AT_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!host && !sim_device_valid(properties->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    TROUBLE(SIM_VMM);
    struct handle *h = calloc(1, sizeof *h);
    if (!h)
        return CUDA_ERROR_OUT_OF_MEMORY;
    h->device = host ? -1 : properties->location.id;
    h->host = host;
    h->size = n;
    h->handle_types = properties->handle_types;
    h->references = 1;
    sim_lock();
    bool fits = host || sim_take(sim_here->process, sim_devices[h->device].card, n);
    if (fits) {
        h->id = next_handle;
        next_handle += 16;
        h->offset = next_offset;
        next_offset += n;
        h->next = handles;
        handles = h;
        *out = h->id;
    }
    sim_unlock();
    if (!fits)
        free(h);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

ENTRY cuMemRelease(uint64_t id) {
    READY();
    TROUBLE(SIM_FREE);
    sim_lock();
    struct handle *h = handle_of(id);
    bool good = h && h->references > 0;
    if (good) {
        h->references--;
        settle(h);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemRetainAllocationHandle(uint64_t *out, void *address) {
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct mapping *m =
        mapping_of(range_of((CUdeviceptr)(uintptr_t)address), (CUdeviceptr)(uintptr_t)address);
    if (m) {
        m->handle->references++;
        *out = m->handle->id;
    }
    sim_unlock();
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemGetAllocationPropertiesFromHandle(struct allocation_properties *out, uint64_t id) {
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct handle *h = handle_of(id);
    if (h) {
        memset(out, 0, sizeof *out);
        out->type = 1;
        out->handle_types = h->handle_types;
        out->location.type = h->host ? AT_HOST : AT_DEVICE;
        out->location.id = h->host ? 0 : h->device;
    }
    sim_unlock();
    return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- addresses ---------------------------------------------------------------------------------- */

static void *nothing_at(void *where, size_t n) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (where ? MAP_FIXED : 0);
    return mmap(where, n, PROT_NONE, flags, -1, 0);
}

ENTRY cuMemAddressReserve(CUdeviceptr *out, size_t n, size_t alignment, CUdeviceptr hint,
                          unsigned long long flags) {
    READY();
    if (!out || n == 0 || n % GRANULE || flags || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    size_t align = alignment < GRANULE ? GRANULE : alignment;
    struct range *r = calloc(1, sizeof *r);
    char *p = n < SIZE_MAX - align ? nothing_at(NULL, n + align) : MAP_FAILED;
    if (!r || p == MAP_FAILED) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t before = (align - (uintptr_t)p % align) % align;
    if (before)
        munmap(p, before);
    munmap(p + before + n, align - before);
    r->at = (CUdeviceptr)(uintptr_t)(p + before);
    r->size = n;
    sim_lock();
    r->next = ranges;
    ranges = r;
    sim_unlock();
    *out = r->at;
    return CUDA_SUCCESS;
}

ENTRY cuMemAddressFree(CUdeviceptr at, size_t n) {
    READY();
    sim_lock();
    struct range **p = &ranges, *r;
    while (*p && (*p)->at != at)
        p = &(*p)->next;
    r = *p;
    bool good = r && r->size == n && !r->mappings;
    if (good)
        *p = r->next;
    sim_unlock();
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)at, n);
    free(r);
    return CUDA_SUCCESS;
}

static bool show(CUdeviceptr at, const struct handle *h, size_t n) {
    if (!sim_backed())
        return true;
    if (file < 0)
        file = memfd_create("gaia-sim", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)next_offset) != 0)
        return false;
    return mmap((void *)(uintptr_t)at, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                file, (off_t)h->offset) != MAP_FAILED;
}

static bool taken(const struct range *r, CUdeviceptr at, size_t n) {
    for (struct mapping *m = r->mappings; m; m = m->next)
        if (at < m->at + m->size && m->at < at + n)
            return true;
    return false;
}

ENTRY cuMemMap(CUdeviceptr at, size_t n, size_t offset, uint64_t id, unsigned long long flags) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    READY();
    if (flags || offset || n == 0 || n % GRANULE || at % GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_VMM);
    struct mapping *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    struct handle *h = handle_of(id);
    struct range *r = range_of(at);
    if (h && r && n <= h->size && n <= r->size - (at - r->at) && !taken(r, at, n)) {
        result = show(at, h, n) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS) {
            h->mappings++;
            *m = (struct mapping){at, n, h, 0, r->mappings};
            r->mappings = m;
        }
    }
    sim_unlock();
    if (result)
        free(m);
    return result;
}

/* The bytes of the range that lie in mappings which are wholly within it. */
static uint64_t covered_by(const struct range *r, CUdeviceptr at, size_t n) {
    uint64_t covered = 0;
    for (const struct mapping *m = r ? r->mappings : NULL; m; m = m->next)
        if (m->at >= at && m->at + m->size <= at + n)
            covered += m->size;
    return covered;
}

/* The range has to cover whole mappings, one or several. */
ENTRY cuMemUnmap(CUdeviceptr at, size_t n) {
    READY();
    TROUBLE(SIM_FREE);
    sim_lock();
    struct range *r = range_of(at);
    bool good = n > 0 && covered_by(r, at, n) == n;
    for (struct mapping **p = good ? &r->mappings : NULL; p && *p;) {
        struct mapping *m = *p;
        if (m->at < at || m->at >= at + n) {
            p = &m->next;
            continue;
        }
        *p = m->next;
        if (sim_backed())
            nothing_at((void *)(uintptr_t)m->at, m->size);
        m->handle->mappings--;
        settle(m->handle);
        free(m);
    }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct access {
    CUmemLocation location;
    int flags;
};

ENTRY cuMemSetAccess(CUdeviceptr at, size_t n, const struct access *access, size_t count) {
    READY();
    if (!access || count == 0 || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    TROUBLE(SIM_VMM);
    sim_lock();
    struct range *r = range_of(at);
    bool good = covered_by(r, at, n) == n;
    for (struct mapping *m = good ? r->mappings : NULL; m; m = m->next)
        for (size_t i = 0; i < count && m->at >= at && m->at < at + n; i++)
            if (access[i].location.type == AT_DEVICE && sim_device_valid(access[i].location.id)) {
                uint32_t bit = 1u << access[i].location.id;
                m->access = access[i].flags ? m->access | bit : m->access & ~bit;
            }
    sim_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr at) {
    READY();
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct mapping *m = mapping_of(range_of(at), at);
    if (m)
        *flags =
            location->type == AT_DEVICE && sim_device_valid(location->id) && m->access & (1u << location->id)
                ? 3
                : 0;
    sim_unlock();
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
