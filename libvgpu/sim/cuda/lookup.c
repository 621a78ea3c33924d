/* lookup.c - entry points by name and version. */
#include "cuda.h"
#include "entry_points.h"

enum { FOUND = 0, NO_SUCH_NAME = 1, TOO_OLD = 2 };
enum { PER_THREAD = 2 };

/* The variant with the highest version that is not above the one asked for; a per-thread one goes
 * first when that flag is set, and the plain one stands in where there is none. */
static const struct sim_entry_point *find(const char *name, int version, uint64_t flags, int *status) {
    const struct sim_entry_point *best = NULL;
    bool seen = false;
    for (size_t i = 0; i < sim_entry_point_count; i++) {
        const struct sim_entry_point *r = &sim_entry_points[i];
        if (strcmp(r->base, name) != 0 || (r->thread && !(flags & PER_THREAD)))
            continue;
        seen = true;
        if (r->version > version || r->version > sim_config()->cuda)
            continue;
        if (!best || (r->thread != best->thread ? r->thread : r->version >= best->version))
            best = r;
    }
    *status = best ? FOUND : seen ? TOO_OLD : NO_SUCH_NAME;
    return best;
}

static CUresult search(const char *name, void **out, int version, uint64_t flags, int *status) {
    if (!name || !out || version > sim_config()->cuda || flags > 3)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_entry_point *r = find(name, version, flags, status);
    *out = r ? (void *)(uintptr_t)r->function : NULL;
    sim_trace("look-up %s %d %llu: %s", name, version, (unsigned long long)flags, r ? r->symbol : "-");
    return CUDA_SUCCESS;
}

ENTRY cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *status) {
    int unused;
    return search(name, out, version, flags, status ? status : &unused);
}

ENTRY cuGetProcAddress(const char *name, void **out, int version, uint64_t flags) {
    int status;
    CUresult result = search(name, out, version, flags, &status);
    return result == CUDA_SUCCESS && status != FOUND ? CUDA_ERROR_NOT_FOUND : result;
}

/* Private tables, of which only the shape is here: an array whose first word is its size in bytes.
 * NVIDIA's own runtime looks into them for its own driver; this is not it and does not pretend to be. */
ENTRY cuGetExportTable(const void **out, const CUuuid *id) {
    static const uint64_t empty[1] = {sizeof(uint64_t)};
    if (!out || !id)
        return CUDA_ERROR_INVALID_VALUE;
    sim_trace("export table asked for");
    *out = empty;
    return CUDA_SUCCESS;
}
