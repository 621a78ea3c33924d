/* array.c - CUDA arrays: opaque shapes, charged by width x height x depth x bytes of a texel, rounded up
 * as the driver lays them out. Sparse and deferred ones take nothing themselves: cuMemCreate does. */
#include "cuda/hook.h"

enum { ROW = 128, WHOLE = 65536 };

/* Bits of one texel. Unknown formats count as the largest there is: never too little. */
static uint64_t texel_bits(int format, unsigned channels) {
    switch (format) {
    case 0x01: /* 8-bit integers, signed and unsigned */
    case 0x08:
        return 8u * channels;
    case 0x02: /* 16 bits, half */
    case 0x09:
    case 0x10:
        return 16u * channels;
    case 0x03: /* 32 bits, float */
    case 0x0a:
    case 0x20:
        return 32u * channels;
    case 0xc0: /* normalized, the channels are part of the format: 8 bits x 1, 2, 4 */
    case 0xc6:
        return 8;
    case 0xc1:
    case 0xc7:
        return 16;
    case 0xc2:
    case 0xc8:
        return 32;
    case 0xc3: /* 16 bits x 1, 2, 4 */
    case 0xc9:
        return 16;
    case 0xc4:
    case 0xca:
        return 32;
    case 0xc5:
    case 0xcb:
        return 64;
    case 0x91: /* block-compressed: BC1 and BC4 take 4 bits, the others 8 */
    case 0x92:
    case 0x97:
    case 0x98:
        return 4;
    case 0x93:
    case 0x94:
    case 0x95:
    case 0x96:
    case 0x99:
    case 0x9a:
    case 0x9b:
    case 0x9c:
    case 0x9d:
    case 0x9e:
        return 8;
    case 0xb0: /* video: NV12, P010, P016, NV16, P210, P216, YUY2, Y210, Y216, AYUV, Y410, Y416, Y444 */
        return 12;
    case 0xa2:
    case 0xa5:
        return 16;
    case 0x9f:
    case 0xa1:
    case 0xb2:
    case 0xb4:
        return 24;
    case 0xa3:
    case 0xa4:
    case 0xa6:
    case 0xa7:
    case 0xa8:
    case 0xa9:
    case 0x50:
        return 32;
    case 0xb3:
    case 0xb5:
        return 48;
    case 0xb1:
        return 64;
    default:
        return 128;
    }
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t round_up(uint64_t bytes, uint64_t to) {
    return bytes > UINT64_MAX - to ? UINT64_MAX : (bytes + to - 1) / to * to;
}

static uint64_t array_bytes(const gaia_cu_array3d *shape, unsigned levels) {
    if (shape->flags & (GAIA_CU_ARRAY_SPARSE | GAIA_CU_ARRAY_DEFERRED))
        return 0;
    uint64_t row = round_up(times(shape->width, texel_bits(shape->format, shape->channels)), 8) / 8;
    uint64_t bytes =
        times(times(round_up(row, ROW), shape->height ? shape->height : 1), shape->depth ? shape->depth : 1);
    if (levels > 1) /* every level has a quarter of the one before: 4/3 in all */
        bytes = gaia_sum(bytes, bytes / 3 + 1);
    return round_up(bytes, WHOLE);
}

struct making {
    gaia_cu_object *array;
    const gaia_cu_array2d *flat;
    const gaia_cu_array3d *shape;
    unsigned levels; /* 0: no mipmap */
};

static int call(const struct gaia_driver *driver, const struct making *m) {
    if (m->flat)
        return driver->cuArrayCreate_v2(m->array, m->flat);
    return m->levels ? driver->cuMipmappedArrayCreate(m->array, m->shape, m->levels)
                     : driver->cuArray3DCreate_v2(m->array, m->shape);
}

static void unmake(const struct gaia_driver *driver, const struct making *m) {
    if (m->levels)
        driver->cuMipmappedArrayDestroy(*m->array);
    else
        driver->cuArrayDestroy(*m->array);
}

static int make(const struct making *m) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_hold hold;
    gaia_cu_array3d shape = {0};
    if (!m->array || !(m->flat || m->shape))
        return call(driver, m);
    if (m->flat)
        shape = (gaia_cu_array3d){m->flat->width, m->flat->height, 0, m->flat->format, m->flat->channels, 0};
    else
        shape = *m->shape;
    uint64_t bytes = array_bytes(&shape, m->levels);
    if (bytes == 0)
        return call(driver, m);
    int error = gaia_hold_current(&hold, driver, bytes);
    if (error)
        return error;
    error = call(driver, m);
    if (error != GAIA_CU_SUCCESS) {
        gaia_hold_drop(&hold);
        return error;
    }
    if (gaia_hold_keep(&hold, GAIA_KIND_ARRAY, (uint64_t)(uintptr_t)*m->array, bytes,
                       gaia_current_context(driver)))
        return GAIA_CU_SUCCESS;
    unmake(driver, m);
    return GAIA_CU_OUT_OF_MEMORY;
}

GAIA_EXPORT gaia_cu_result cuArrayCreate_v2(gaia_cu_object *array, const gaia_cu_array2d *shape) {
    return make(&(struct making){array, shape, NULL, 0});
}
GAIA_EXPORT gaia_cu_result cuArray3DCreate_v2(gaia_cu_object *array, const gaia_cu_array3d *shape) {
    return make(&(struct making){array, NULL, shape, 0});
}
GAIA_EXPORT gaia_cu_result cuMipmappedArrayCreate(gaia_cu_object *array, const gaia_cu_array3d *shape,
                                                  unsigned levels) {
    if (levels == 0) /* the driver's to refuse */
        return gaia_driver()->cuMipmappedArrayCreate(array, shape, levels);
    return make(&(struct making){array, NULL, shape, levels});
}

static int destroy(gaia_cu_object array, gaia_cu_result (*driver_call)(gaia_cu_object)) {
    struct gaia_process *self = gaia_process_known();
    struct gaia_entry entry;
    if (!self || !gaia_table_take(&self->table, GAIA_KIND_ARRAY, (uint64_t)(uintptr_t)array, &entry))
        return driver_call(array);
    int error = driver_call(array);
    if (error == GAIA_CU_SUCCESS)
        gaia_give_back(entry.card, entry.size);
    else
        gaia_table_put(&self->table, &entry);
    return error;
}

GAIA_EXPORT gaia_cu_result cuArrayDestroy(gaia_cu_object array) {
    return destroy(array, gaia_driver()->cuArrayDestroy);
}
GAIA_EXPORT gaia_cu_result cuMipmappedArrayDestroy(gaia_cu_object array) {
    return destroy(array, gaia_driver()->cuMipmappedArrayDestroy);
}
