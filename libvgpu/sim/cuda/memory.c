/* memory.c - cuMemAlloc and its kin: memory that belongs to a context. */
#include "cuda.h"

static void link_block(struct sim_context *c, struct sim_block *b) {
    b->context = c;
    b->next = c->blocks;
    if (c->blocks)
        c->blocks->previous = b;
    c->blocks = b;
}

static void unlink_block(struct sim_block *b) {
    if (b->previous)
        b->previous->next = b->next;
    else
        b->context->blocks = b->next;
    if (b->next)
        b->next->previous = b->previous;
}

CUresult sim_allocate(CUdeviceptr *out, uint64_t n, struct sim_context *c, enum sim_kind kind) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_process *me = sim_here->process;
    sim_lock();
    if (likely(sim_take(me, c->card, n))) {
        struct sim_block *b = sim_block_take(n, kind);
        if (likely(b != NULL)) {
            link_block(c, b);
            *out = b->address;
            result = CUDA_SUCCESS;
        } else {
            sim_give(me, c->card, n);
        }
    }
    sim_unlock();
    return result;
}

void sim_context_drop_blocks(struct sim_context *c) {
    struct sim_block *b;
    while ((b = c->blocks)) {
        uint64_t n = b->size;
        unlink_block(b);
        sim_give(sim_here->process, c->card, n);
        sim_block_return(b);
    }
}

static CUresult plain(CUdeviceptr *out, uint64_t n, enum sim_kind kind) {
    CURRENT(c);
    if (unlikely(!out || n == 0))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult forbidden = sim_capture_forbids();
    if (unlikely(forbidden))
        return forbidden;
    TROUBLE(SIM_ALLOC);
    return sim_allocate(out, n, c, kind);
}

ENTRY cuMemAlloc_v2(CUdeviceptr *out, size_t n) { return plain(out, n, BLOCK_DEVICE); }

ENTRY cuMemAllocManaged(CUdeviceptr *out, size_t n, unsigned flags) {
    if (flags != 1 && flags != 2) /* CU_MEM_ATTACH_GLOBAL, _HOST */
        return CUDA_ERROR_INVALID_VALUE;
    return plain(out, n, BLOCK_MANAGED);
}

ENTRY cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    size_t step;
    if (!pitch || width == 0 || height == 0 || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (width > SIZE_MAX - 511 || __builtin_mul_overflow((width + 511) & ~(size_t)511, height, &step))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = plain(out, step, BLOCK_DEVICE);
    if (result == CUDA_SUCCESS)
        *pitch = (width + 511) & ~(size_t)511;
    return result;
}

/* Any thread may free, with any context current or none: the block knows whose it is. */
static CUresult release(CUdeviceptr address, bool array) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_block *b = sim_block_find(address);
    uint32_t kind = b && b->address == address ? b->kind : BLOCK_FREE;
    if (kind == BLOCK_POOL && !array) {
        sim_pool_free(b);
        result = CUDA_SUCCESS;
    } else if (kind == BLOCK_GRAPH && !array) {
        sim_block_return(b);
        result = CUDA_SUCCESS;
    } else if (array ? kind == BLOCK_ARRAY : kind == BLOCK_DEVICE || kind == BLOCK_MANAGED) {
        unlink_block(b);
        sim_give(sim_here->process, b->context->card, b->size);
        sim_block_return(b);
        result = CUDA_SUCCESS;
    }
    sim_unlock();
    return result;
}

ENTRY cuMemFree_v2(CUdeviceptr address) {
    READY();
    if (!address)
        return CUDA_SUCCESS;
    CUresult forbidden = sim_capture_forbids();
    if (unlikely(forbidden))
        return forbidden;
    TROUBLE(SIM_FREE);
    return release(address, false);
}

/* stream order is not modelled: an asynchronous free is done when it is called */
ENTRY cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    READY();
    if (!address)
        return CUDA_SUCCESS;
    TROUBLE(SIM_FREE);
    return release(address, false);
}
SAME(cuMemFreeAsync_ptsz, cuMemFreeAsync);

CUresult sim_array_free(CUdeviceptr handle);
CUresult sim_array_free(CUdeviceptr handle) {
    READY();
    TROUBLE(SIM_FREE);
    CUresult result = release(handle, true);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_INVALID_HANDLE : result;
}

ENTRY cuMemGetInfo_v2(size_t *available, size_t *total) {
    CURRENT(c);
    TROUBLE(SIM_INFO);
    uint64_t most = sim_usable(&sim_config()->machine.card[c->card]);
    sim_word *total_used = &sim_state->card[c->card].used;
    uint64_t used = atomic_load_explicit(total_used, memory_order_relaxed);
    if (unlikely(used !=
                 atomic_load_explicit(&sim_here->process->card[c->card].used, memory_order_relaxed))) {
        sim_sweep_lightly(); /* others have memory here, and some of them may have ended */
        used = atomic_load_explicit(total_used, memory_order_relaxed);
    }
    if (available)
        *available = used < most ? most - used : 0;
    if (total)
        *total = most;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceTotalMem_v2(size_t *total, CUdevice d) {
    READY();
    if (!total)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_valid(d))
        return CUDA_ERROR_INVALID_DEVICE;
    TROUBLE(SIM_INFO);
    *total = sim_usable(&sim_config()->machine.card[sim_devices[d].card]);
    return CUDA_SUCCESS;
}
