/* arrays.c - arrays and mipmapped arrays: opaque memory, counted by rows and slices. */
#include "cuda.h"

CUresult sim_array_free(CUdeviceptr handle); /* memory.c */

#define FLAG_SPARSE 0x40
#define FLAG_DEFERRED 0x80

struct shape {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

/* bytes of a channel; for block formats, of a texel, rounded up */
static unsigned channel_bytes(int format) {
    switch (format) {
    case 0x01: /* unsigned 8, 16, 32; signed; half; float */
    case 0x08:
        return 1;
    case 0x02:
    case 0x09:
    case 0x10:
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
        return 4;
    default:
        return format >= 0xc0 && format <= 0xcb ? 1 : format >= 0x91 && format <= 0xb0 ? 1 : 4;
    }
}

static CUresult shaped(CUdeviceptr *out, const struct shape *s, unsigned levels) {
    CURRENT(c);
    uint64_t n;
    if (!out || !s || s->width == 0 || s->channels == 0 || s->channels > 4)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t rows = s->height ? s->height : 1, slices = s->depth ? s->depth : 1;
    uint64_t row = (s->width * s->channels * channel_bytes(s->format) + 511) & ~UINT64_C(511);
    if (__builtin_mul_overflow(row, rows, &n) || __builtin_mul_overflow(n, slices, &n) ||
        n > UINT64_C(1) << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (levels > 1)
        n += n / 3;
    TROUBLE(SIM_ALLOC);
    if (s->flags & (FLAG_SPARSE | FLAG_DEFERRED))
        n = 512; /* no memory of its own yet: an address to name it by */
    return sim_allocate(out, n, c, BLOCK_ARRAY);
}

ENTRY cuArrayCreate_v2(CUdeviceptr *out, const void *descriptor) {
    const struct {
        size_t width, height;
        int format;
        unsigned channels;
    } *d = descriptor;
    if (!d)
        return CUDA_ERROR_INVALID_VALUE;
    struct shape s = {d->width, d->height, 0, d->format, d->channels, 0};
    return shaped(out, &s, 1);
}

ENTRY cuArray3DCreate_v2(CUdeviceptr *out, const struct shape *s) { return shaped(out, s, 1); }

ENTRY cuMipmappedArrayCreate(CUdeviceptr *out, const struct shape *s, unsigned levels) {
    return levels ? shaped(out, s, levels) : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuArrayDestroy(CUdeviceptr handle) { return sim_array_free(handle); }
ENTRY cuMipmappedArrayDestroy(CUdeviceptr handle) { return sim_array_free(handle); }
