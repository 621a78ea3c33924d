/* pointers.c - what one may ask of an address. */
#include "cuda.h"

int sim_pool_handle_types(const struct sim_pool *pool); /* pools.c */

enum {
    CONTEXT = 1,
    MEMORY_TYPE,
    DEVICE_POINTER,
    HOST_POINTER,
    P2P_TOKENS,
    SYNC_MEMOPS,
    BUFFER_ID,
    IS_MANAGED,
    DEVICE_ORDINAL,
    IS_IPC_CAPABLE,
    RANGE_START,
    RANGE_SIZE,
    MAPPED,
    HANDLE_TYPES,
    IS_RDMA_CAPABLE,
    ACCESS_FLAGS,
    MEMPOOL_HANDLE,
    MAPPING_SIZE,
    MAPPING_BASE,
    BLOCK_ID
};

struct place {
    CUdeviceptr start, host;
    uint64_t size, id;
    int type; /* 1 host, 2 device */
    int device, handle_types;
    bool managed, mapped;
    struct sim_context *context;
    struct sim_pool *pool;
};

static bool find(CUdeviceptr at, struct place *p) {
    void *start;
    memset(p, 0, sizeof *p);
    sim_lock();
    struct sim_block *b = sim_block_find(at);
    if (b) {
        p->start = b->address;
        p->size = b->size;
        p->id = b->id;
        p->type = 2;
        p->managed = b->kind == BLOCK_MANAGED;
        p->host = p->managed ? at : 0;
        p->context = b->context;
        p->device = b->context ? b->context->device : 0;
        p->pool = b->pool;
        p->handle_types = sim_pool_handle_types(b->pool);
    }
    sim_unlock();
    if (b)
        return true;
    p->mapped = sim_vmm_find(at, &p->start, &p->size, &p->device);
    if (p->mapped) {
        p->type = 2;
        p->id = p->start;
        return true;
    }
    if (!sim_host_find((void *)(uintptr_t)at, &start, &p->size))
        return false;
    p->start = (CUdeviceptr)(uintptr_t)start;
    p->host = at;
    p->type = 1;
    p->id = p->start;
    return true;
}

static CUresult answer(void *out, int attribute, CUdeviceptr at, const struct place *p) {
    switch (attribute) {
    case CONTEXT:
        *(CUcontext *)out = p->context;
        return p->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case MEMORY_TYPE:
        *(unsigned *)out = (unsigned)p->type;
        return CUDA_SUCCESS;
    case DEVICE_POINTER:
        *(CUdeviceptr *)out = at;
        return CUDA_SUCCESS;
    case HOST_POINTER:
        *(CUdeviceptr *)out = p->host;
        return p->host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case SYNC_MEMOPS:
        *(int *)out = 0;
        return CUDA_SUCCESS;
    case BUFFER_ID:
    case BLOCK_ID:
        *(uint64_t *)out = p->id;
        return CUDA_SUCCESS;
    case IS_MANAGED:
        *(unsigned *)out = p->managed; /* 4 bytes are read by some, 1 by others: both are right */
        return CUDA_SUCCESS;
    case DEVICE_ORDINAL:
        *(int *)out = p->device;
        return CUDA_SUCCESS;
    case IS_IPC_CAPABLE:
    case IS_RDMA_CAPABLE:
        *(unsigned char *)out = 0;
        return CUDA_SUCCESS;
    case RANGE_START:
    case MAPPING_BASE:
        *(CUdeviceptr *)out = p->start;
        return CUDA_SUCCESS;
    case RANGE_SIZE:
    case MAPPING_SIZE:
        *(size_t *)out = p->size;
        return CUDA_SUCCESS;
    case MAPPED:
        *(unsigned char *)out = 1;
        return CUDA_SUCCESS;
    case HANDLE_TYPES:
        *(uint64_t *)out = (uint64_t)p->handle_types;
        return CUDA_SUCCESS;
    case ACCESS_FLAGS:
        *(int *)out = 3;
        return CUDA_SUCCESS;
    case MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = p->pool;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuPointerGetAttribute(void *out, int attribute, CUdeviceptr at) {
    struct place p;
    READY();
    if (!out || attribute < 1 || attribute > BLOCK_ID || attribute == P2P_TOKENS)
        return CUDA_ERROR_INVALID_VALUE;
    return find(at, &p) ? answer(out, attribute, at, &p) : CUDA_ERROR_INVALID_VALUE;
}

/* An address that CUDA does not know gets zeros and success here, unlike above. */
ENTRY cuPointerGetAttributes(unsigned count, int *attributes, void **out, CUdeviceptr at) {
    struct place p;
    READY();
    if (!attributes || !out)
        return CUDA_ERROR_INVALID_VALUE;
    bool known = find(at, &p);
    for (unsigned i = 0; i < count; i++) {
        static const unsigned char size[] = {
            [CONTEXT] = 8,        [MEMORY_TYPE] = 4,     [DEVICE_POINTER] = 8, [HOST_POINTER] = 8,
            [SYNC_MEMOPS] = 4,    [BUFFER_ID] = 8,       [IS_MANAGED] = 4,     [DEVICE_ORDINAL] = 4,
            [IS_IPC_CAPABLE] = 1, [RANGE_START] = 8,     [RANGE_SIZE] = 8,     [MAPPED] = 1,
            [HANDLE_TYPES] = 8,   [IS_RDMA_CAPABLE] = 1, [ACCESS_FLAGS] = 4,   [MEMPOOL_HANDLE] = 8,
            [MAPPING_SIZE] = 8,   [MAPPING_BASE] = 8,    [BLOCK_ID] = 8};
        int a = attributes[i];
        if (a < 1 || a > BLOCK_ID || !size[a] || !out[i])
            return CUDA_ERROR_INVALID_VALUE;
        memset(out[i], 0, size[a]);
        if (known)
            answer(out[i], a, at, &p);
        else if (a == DEVICE_ORDINAL)
            *(int *)out[i] = -2;
    }
    return CUDA_SUCCESS;
}

ENTRY cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr at) {
    struct place p;
    READY();
    return value && attribute == SYNC_MEMOPS && find(at, &p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr at) {
    struct place p;
    READY();
    if (!find(at, &p) || p.type != 2)
        return CUDA_ERROR_NOT_FOUND;
    if (start)
        *start = p.start;
    if (size)
        *size = p.size;
    return CUDA_SUCCESS;
}

ENTRY cuMemRangeGetAttribute(void *out, size_t size, int attribute, CUdeviceptr at, size_t n) {
    struct place p;
    READY();
    if (!out || size < 4 || !find(at, &p) || !p.managed)
        return CUDA_ERROR_INVALID_VALUE;
    memset(out, 0, size);
    return CUDA_SUCCESS;
}
