/* init.c - cuInit, versions, and what a fork does. */
#define _GNU_SOURCE
#include "cuda.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sim_here nowhere;
struct sim_here *sim_here = &nowhere;
unsigned sim_epoch;
struct sim_device sim_devices[SIM_CARDS];
int sim_device_count;

static pthread_mutex_t initialising = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool ended;
static pid_t initialised_by;

CUresult sim_not_ready(void) { return ended ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED; }

static void forked(void) {
    sim_here->ready = false;
    sim_here->process = NULL;
    pthread_mutex_init(&initialising, NULL); /* a thread that the child does not have may hold it */
}

static bool make_here(void) {
    if (sim_here != &nowhere)
        return true;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return false;
    madvise(page, 4096, MADV_WIPEONFORK); /* children by a bare clone() too; older kernels: forked() */
    pthread_atfork(NULL, NULL, forked);
    sim_here = page;
    return true;
}

/* Whatever the tables hold belongs to a parent whose child this is. */
static void forget(void) {
    sim_epoch++;
    sim_contexts_forget();
    sim_pools_forget();
    sim_vmm_forget();
    sim_streams_forget();
    sim_events_forget();
    sim_host_forget();
    memset(sim_devices, 0, sizeof sim_devices);
}

static CUresult start(void) {
    unsigned cards[SIM_CARDS];
    const char *problem = sim_open();
    if (problem) {
        sim_trace("cuInit: %s", problem);
        return CUDA_ERROR_NO_DEVICE;
    }
    int n = sim_visible(cards);
    if (n == 0)
        return CUDA_ERROR_NO_DEVICE;
    if (!make_here())
        return CUDA_ERROR_OUT_OF_MEMORY;
    forget();
    if (!sim_blocks_start())
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_device_count = n;
    for (int i = 0; i < n; i++)
        sim_devices[i].card = cards[i];
    sim_lock();
    struct sim_process *process = sim_process_take();
    sim_unlock();
    if (!process)
        return CUDA_ERROR_OUT_OF_MEMORY;
    initialised_by = getpid();
    sim_here->process = process;
    atomic_thread_fence(memory_order_release);
    sim_here->ready = true;
    return CUDA_SUCCESS;
}

ENTRY cuInit(unsigned flags) {
    CUresult result = CUDA_SUCCESS;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (ended)
        return CUDA_ERROR_DEINITIALIZED;
    pthread_mutex_lock(&initialising);
    if (!sim_here->ready)
        result = start();
    pthread_mutex_unlock(&initialising);
    return result;
}

/* A process that ends gives its memory back at once; one that is killed is swept. Threads may still be
 * inside calls: they keep the place, which is free for others once the process is gone. */
__attribute__((destructor)) static void end(void) {
    struct sim_process *process = sim_here->process;
    if (!sim_here->ready || initialised_by != getpid())
        return;
    ended = true;
    sim_here->ready = false;
    sim_lock();
    sim_process_empty(process);
    sim_unlock();
}

ENTRY cuDriverGetVersion(int *version) {
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_config()->cuda;
    return CUDA_SUCCESS;
}
