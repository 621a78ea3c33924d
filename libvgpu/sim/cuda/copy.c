/* copy.c - copies and fills. Device memory that is not backed swallows what is written to it. */
#include "cuda.h"

/* how a range may be used: host memory as it is; device memory if it is all inside one allocation */
enum reach { REACH_OK, REACH_SKIP, REACH_BAD };

static enum reach reach(CUdeviceptr at, size_t n) {
    CUdeviceptr start;
    uint64_t size;
    int device;
    if (sim_blocks_contain(at)) {
        struct sim_block *b = sim_block_find(at);
        if (!b || n > b->size - (at - b->address) || b->kind == BLOCK_ARRAY)
            return REACH_BAD;
        atomic_store_explicit(&b->touched, 1, memory_order_relaxed);
        return sim_backed() ? REACH_OK : REACH_SKIP;
    }
    if (sim_vmm_reserved(at)) {
        while (n > 0) { /* neighbouring mappings form one range */
            if (!sim_vmm_find(at, &start, &size, &device))
                return REACH_BAD;
            uint64_t here = size - (at - start);
            at += here;
            n = n > here ? n - here : 0;
        }
        return sim_backed() ? REACH_OK : REACH_SKIP;
    }
    return at ? REACH_OK : REACH_BAD;
}

static CUresult rows(CUdeviceptr to, size_t to_pitch, CUdeviceptr from, size_t from_pitch, size_t width,
                     size_t height) {
    CURRENT(c);
    (void)c;
    TROUBLE(SIM_COPY);
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (height > 1 && (to_pitch < width || from_pitch < width))
        return CUDA_ERROR_INVALID_VALUE;
    enum reach a = reach(to, to_pitch * (height - 1) + width),
               b = reach(from, from_pitch * (height - 1) + width);
    if (a == REACH_BAD || b == REACH_BAD)
        return CUDA_ERROR_INVALID_VALUE;
    if (a == REACH_SKIP || b == REACH_SKIP)
        return CUDA_SUCCESS;
    for (size_t y = 0; y < height; y++)
        memmove((char *)(uintptr_t)to + y * to_pitch, (const char *)(uintptr_t)from + y * from_pitch, width);
    return CUDA_SUCCESS;
}

/* Calls that return when they are done first wait for the work before them, as the legacy stream does. */
static CUresult turn(void) {
    CURRENT(c);
    struct sim_process *me = sim_here->process;
    sim_await(me, c->card, atomic_load_explicit(&me->card[c->card].submitted, memory_order_relaxed));
    return CUDA_SUCCESS;
}

static CUresult bytes(CUdeviceptr to, CUdeviceptr from, size_t n) { return rows(to, n, from, n, n, 1); }
static CUresult bytes_now(CUdeviceptr to, CUdeviceptr from, size_t n) {
    CUresult result = turn();
    return result ? result : bytes(to, from, n);
}

#define PTR(p) ((CUdeviceptr)(uintptr_t)(p))

ENTRY cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) { return bytes_now(to, from, n); }
SAME(cuMemcpy_ptds, cuMemcpy);
ENTRY cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) { return bytes(to, from, n); }
SAME(cuMemcpyAsync_ptsz, cuMemcpyAsync);

ENTRY cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) { return bytes_now(to, PTR(from), n); }
SAME(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2);
ENTRY cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { return bytes_now(PTR(to), from, n); }
SAME(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2);
ENTRY cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) { return bytes_now(to, from, n); }
SAME(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2);

ENTRY cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
    return bytes(to, PTR(from), n);
}
SAME(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2);
ENTRY cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
    return bytes(PTR(to), from, n);
}
SAME(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2);
ENTRY cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    return bytes(to, from, n);
}
SAME(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2);

ENTRY cuMemcpyPeer(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n) {
    return bytes_now(to, from, n);
}
SAME(cuMemcpyPeer_ptds, cuMemcpyPeer);
ENTRY cuMemcpyPeerAsync(CUdeviceptr to, CUcontext a, CUdeviceptr from, CUcontext b, size_t n, CUstream s) {
    return bytes(to, from, n);
}
SAME(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync);

/* CUDA_MEMCPY2D; memory types: 1 host, 2 device, 3 array, 4 unified */
struct copy2 {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};

static CUresult copy2(const struct copy2 *k) {
    READY();
    if (!k)
        return CUDA_ERROR_INVALID_VALUE;
    if (k->from_type == 3 || k->to_type == 3)
        return CUDA_ERROR_NOT_SUPPORTED; /* the layout of arrays is not modelled */
    CUdeviceptr from = k->from_type == 1 ? PTR(k->from_host) : k->from_device;
    CUdeviceptr to = k->to_type == 1 ? PTR(k->to_host) : k->to_device;
    size_t from_pitch = k->from_pitch ? k->from_pitch : k->width,
           to_pitch = k->to_pitch ? k->to_pitch : k->width;
    return rows(to + k->to_y * to_pitch + k->to_x, to_pitch, from + k->from_y * from_pitch + k->from_x,
                from_pitch, k->width, k->height);
}
ENTRY cuMemcpy2D_v2(const struct copy2 *k) {
    CUresult result = turn();
    return result ? result : copy2(k);
}
SAME(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2);
SAME(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);
SAME(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2);
ENTRY cuMemcpy2DAsync_v2(const struct copy2 *k, CUstream s) { return copy2(k); }
SAME(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2);

/* ---- fills ------------------------------------------------------------------------------------------ */

static CUresult fill(CUdeviceptr to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t height) {
    CURRENT(c);
    size_t row;
    (void)c;
    TROUBLE(SIM_COPY);
    if (width == 0 || height == 0)
        return CUDA_SUCCESS;
    if (to % unit || __builtin_mul_overflow(width, unit, &row) || (height > 1 && pitch < row))
        return CUDA_ERROR_INVALID_VALUE;
    enum reach r = reach(to, pitch * (height - 1) + row);
    if (r != REACH_OK)
        return r == REACH_BAD ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (size_t y = 0; y < height; y++) {
        char *p = (char *)(uintptr_t)to + y * pitch;
        if (unit == 1)
            memset(p, (int)(value & 255), row);
        else
            for (size_t x = 0; x < width; x++)
                memcpy(p + x * unit, &value, unit); /* the low bytes: this is a little-endian machine */
    }
    return CUDA_SUCCESS;
}

#define FILLS(bits, type)                                                                                    \
    ENTRY cuMemsetD##bits##_v2(CUdeviceptr p, type v, size_t n) { return fill(p, 0, v, sizeof v, n, 1); }    \
    SAME(cuMemsetD##bits##_v2_ptds, cuMemsetD##bits##_v2);                                                   \
    ENTRY cuMemsetD##bits##Async(CUdeviceptr p, type v, size_t n, CUstream s) {                              \
        return fill(p, 0, v, sizeof v, n, 1);                                                                \
    }                                                                                                        \
    SAME(cuMemsetD##bits##Async_ptsz, cuMemsetD##bits##Async);                                               \
    ENTRY cuMemsetD2D##bits##_v2(CUdeviceptr p, size_t pitch, type v, size_t w, size_t h) {                  \
        return fill(p, pitch, v, sizeof v, w, h);                                                            \
    }                                                                                                        \
    SAME(cuMemsetD2D##bits##_v2_ptds, cuMemsetD2D##bits##_v2);                                               \
    ENTRY cuMemsetD2D##bits##Async(CUdeviceptr p, size_t pitch, type v, size_t w, size_t h, CUstream s) {    \
        return fill(p, pitch, v, sizeof v, w, h);                                                            \
    }                                                                                                        \
    SAME(cuMemsetD2D##bits##Async_ptsz, cuMemsetD2D##bits##Async)

FILLS(8, unsigned char);
FILLS(16, unsigned short);
FILLS(32, unsigned);

/* ---- hints: managed memory is always everywhere ------------------------------------------------------- */

static CUresult hint(CUdeviceptr at, size_t n) {
    READY();
    return n > 0 && sim_block_find(at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
ENTRY cuMemPrefetchAsync(CUdeviceptr at, size_t n, CUdevice d, CUstream s) { return hint(at, n); }
SAME(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync);
ENTRY cuMemPrefetchAsync_v2(CUdeviceptr at, size_t n, CUmemLocation l, unsigned f, CUstream s) {
    return hint(at, n);
}
SAME(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2);
ENTRY cuMemAdvise(CUdeviceptr at, size_t n, int advice, CUdevice d) { return hint(at, n); }
ENTRY cuMemAdvise_v2(CUdeviceptr at, size_t n, int advice, CUmemLocation l) { return hint(at, n); }
