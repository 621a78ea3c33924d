/* host.c - page-locked host memory: not device memory, but known to the pointer queries. */
#define _GNU_SOURCE
#include "cuda.h"
#include <stdlib.h>

struct host {
    char *at;
    size_t size;
    unsigned flags;
    bool registered;
    struct host *next;
};
static struct host *list; /* under the lock */

void sim_host_forget(void) { list = NULL; }

static struct host *find(const void *pointer) {
    for (struct host *h = list; h; h = h->next)
        if ((uintptr_t)pointer - (uintptr_t)h->at < h->size)
            return h;
    return NULL;
}

bool sim_host_find(const void *pointer, void **start, uint64_t *size) {
    sim_lock();
    struct host *h = find(pointer);
    if (h) {
        *start = h->at;
        *size = h->size;
    }
    sim_unlock();
    return h != NULL;
}

static CUresult add(void *at, size_t n, unsigned flags, bool registered) {
    struct host *h = malloc(sizeof *h);
    if (!h)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *h = (struct host){at, n, flags, registered, NULL};
    sim_lock();
    h->next = list;
    list = h;
    sim_unlock();
    return CUDA_SUCCESS;
}

static struct host *take_out(const void *at, bool registered) {
    struct host *h = NULL;
    sim_lock();
    for (struct host **p = &list; *p; p = &(*p)->next)
        if ((*p)->at == at && (*p)->registered == registered) {
            h = *p;
            *p = h->next;
            break;
        }
    sim_unlock();
    return h;
}

ENTRY cuMemHostAlloc(void **out, size_t n, unsigned flags) {
    CURRENT(c);
    (void)c;
    if (!out || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *p = NULL;
    if (posix_memalign(&p, 4096, n) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = add(p, n, flags, false);
    if (result)
        free(p);
    else
        *out = p;
    return result;
}
ENTRY cuMemAllocHost_v2(void **out, size_t n) { return cuMemHostAlloc(out, n, 0); }

ENTRY cuMemFreeHost(void *p) {
    READY();
    if (!p)
        return CUDA_SUCCESS;
    struct host *h = take_out(p, false);
    if (!h)
        return CUDA_ERROR_INVALID_VALUE;
    free(h->at);
    free(h);
    return CUDA_SUCCESS;
}

ENTRY cuMemHostRegister_v2(void *p, size_t n, unsigned flags) {
    CURRENT(c);
    void *start;
    uint64_t size;
    (void)c;
    if (!p || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_host_find(p, &start, &size))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return add(p, n, flags, true);
}

ENTRY cuMemHostUnregister(void *p) {
    READY();
    struct host *h = take_out(p, true);
    if (!h)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    free(h);
    return CUDA_SUCCESS;
}

ENTRY cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags) {
    READY();
    void *start;
    uint64_t size;
    if (!out || flags || !sim_host_find(p, &start, &size))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

ENTRY cuMemHostGetFlags(unsigned *out, void *p) {
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct host *h = find(p);
    if (h)
        *out = h->flags;
    sim_unlock();
    return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
