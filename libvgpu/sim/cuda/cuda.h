/*
 * cuda.h - the driver's own view: types of its interface, and what one process holds.
 *
 * Types follow the published ABI of the driver interface; no CUDA file is needed. Local tables are
 * guarded by the lock of the shared state, which every change of memory takes anyway: a process that
 * is killed takes its tables with it.
 */
#ifndef SIM_CUDA_H
#define SIM_CUDA_H

#include "../state.h"
#include <string.h>

#define ENTRY __attribute__((visibility("default"))) CUresult
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* a second exported name for a function of this file with the same parameters */
#define SAME(name, function)                                                                                 \
    extern __typeof__(function) name __attribute__((alias(#function), visibility("default")))
/* the per-thread name of a call with a stream, which takes 0 for the calling thread's own; THREADS(stream)
 * among the arguments says so */
#define PER_THREAD(name, parameters, arguments)                                                              \
    ENTRY name##_ptsz parameters { return name arguments; }
#define THREADS(stream) ((stream) ? (stream) : (CUstream)2)

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct sim_context *CUcontext;
typedef struct sim_stream *CUstream;
typedef struct sim_event *CUevent;
typedef struct sim_pool *CUmemoryPool;
typedef struct sim_graph *CUgraph;
typedef struct {
    char bytes[16];
} CUuuid;
typedef struct {
    int type; /* enum sim_location */
    int id;
} CUmemLocation;

enum sim_location { AT_DEVICE = 1, AT_HOST = 2, AT_HOST_NUMA = 3, AT_HOST_NUMA_CURRENT = 4 };

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_DEINITIALIZED = 4,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_ILLEGAL_STATE = 401
};

/* ---- this process (init.c) ------------------------------------------------------------------- */

/* in a page of its own that fork wipes: a child finds itself not initialised */
struct sim_here {
    bool ready;
    struct sim_process *process; /* set while ready, and for calls under way when the process ends */
};
extern struct sim_here *sim_here;
extern unsigned sim_epoch; /* which initialisation this is; state of an older one is a parent's */

struct sim_device {
    unsigned card;
    CUmemoryPool standard; /* the default pool */
    CUmemoryPool current;
    struct sim_context *primary;
    unsigned primary_flags;
};
extern struct sim_device sim_devices[SIM_CARDS];
extern int sim_device_count;

CUresult sim_not_ready(void); /* 3, or 4 after the end */

#define READY()                                                                                              \
    do {                                                                                                     \
        if (unlikely(!sim_here->ready))                                                                      \
            return sim_not_ready();                                                                          \
    } while (0)

/* return the injected error of a family, if one is due */
#define TROUBLE(family)                                                                                      \
    do {                                                                                                     \
        int code_ = sim_trouble(family);                                                                     \
        if (unlikely(code_))                                                                                 \
            return code_;                                                                                    \
    } while (0)

static inline bool sim_device_valid(CUdevice d) { return d >= 0 && d < sim_device_count; }

/* Fill `cards` with the cards that CUDA_VISIBLE_DEVICES shows, in CUDA's order; returns how many. */
int sim_visible(unsigned cards[SIM_CARDS]);

/* ---- contexts (context.c) ---------------------------------------------------------------------- */

struct sim_block;

struct sim_context {
    int device;
    unsigned card;
    bool primary;
    _Atomic bool alive; /* a destroyed context keeps its struct, so that old handles are told apart */
    unsigned flags;
    unsigned references; /* primary only */
    uint64_t id;
    uint64_t limit[16];
    uint32_t peers; /* bit per device whose memory this context may reach */
    struct sim_block *blocks;
    struct sim_context *next;
};

/* The calling thread's context, or 3, 201, 709. */
CUresult sim_current(struct sim_context **out);
void sim_contexts_forget(void);
bool sim_context_known(const struct sim_context *context);

#define CURRENT(name)                                                                                        \
    struct sim_context *name;                                                                                \
    do {                                                                                                     \
        CUresult result_ = sim_current(&name);                                                               \
        if (unlikely(result_))                                                                               \
            return result_;                                                                                  \
    } while (0)

/* ---- blocks of device addresses (blocks.c); under the lock -------------------------------------- */

enum sim_kind { BLOCK_FREE, BLOCK_DEVICE, BLOCK_MANAGED, BLOCK_ARRAY, BLOCK_POOL, BLOCK_GRAPH };

struct sim_block {
    uint64_t address;
    uint64_t size; /* as asked for */
    struct sim_context *context;
    struct sim_pool *pool;
    struct sim_block *next, *previous; /* in the context's list, or `next` in the free list */
    uint64_t id;
    _Atomic uint32_t kind; /* enum sim_kind */
    _Atomic uint32_t touched;
};

/* Reserve the address space; false when there is none. */
bool sim_blocks_start(void);
bool sim_backed(void);
struct sim_block *sim_block_take(uint64_t size, enum sim_kind kind);
/* The live block that holds an address, or NULL. Needs no lock for addresses that the caller owns. */
struct sim_block *sim_block_find(CUdeviceptr address);
/* Forget a block. The lock is dropped meanwhile if its memory has to be given back to the system. */
void sim_block_return(struct sim_block *block);
bool sim_blocks_contain(CUdeviceptr address);

/* ---- allocation (memory.c) ----------------------------------------------------------------------- */

CUresult sim_allocate(CUdeviceptr *out, uint64_t n, struct sim_context *context, enum sim_kind kind);
/* Free a context's blocks; under the lock. */
void sim_context_drop_blocks(struct sim_context *context);

/* ---- pools (pools.c) ------------------------------------------------------------------------------ */

void sim_pools_forget(void);
/* The device's last context went: what its pools cached goes too. Under the lock. */
void sim_pools_device_reset(int device);
/* Give back what pools hold above their thresholds. */
void sim_pools_synchronised(void);
/* Return a pool's block to it; under the lock. */
void sim_pool_free(struct sim_block *block);

/* ---- virtual memory management (vmm.c) -------------------------------------------------------------- */

void sim_vmm_forget(void);
/* The mapped range that holds an address: start, size, device; false when there is none. */
bool sim_vmm_find(CUdeviceptr address, CUdeviceptr *start, uint64_t *size, int *device);
/* True for an address in a reservation, mapped or not. */
bool sim_vmm_reserved(CUdeviceptr address);

/* ---- host memory (host.c) ----------------------------------------------------------------------------- */

bool sim_host_find(const void *pointer, void **start, uint64_t *size);
void sim_host_forget(void);

/* ---- streams (stream.c, capture.c) ----------------------------------------------------------------------
 */

struct sim_stream {
    uint64_t magic;
    struct sim_context *context;
    unsigned flags;
    int priority;
    int capture; /* 0 none, 1 active, 2 invalidated */
    int mode;    /* of the capture: 0 global, 1 thread-local, 2 relaxed */
    CUgraph graph;
    uint64_t id, capture_id;
    _Atomic uint64_t end; /* position (timeline.h) at which its last kernel ends */
};

/* Resolve a stream handle; 0 and 1 are the default stream of the context's card, 2 is the calling thread's
 * own there. NULL with 400 for what is none. */
CUresult sim_stream_of(CUstream handle, struct sim_context *context, struct sim_stream **out);
void sim_streams_forget(void);
/* The position up to which the stream's work reaches. The default stream waits for all others, and those
 * that are not made to run beside it, each thread's own among them, wait for it. */
uint64_t sim_stream_end(const struct sim_stream *stream, unsigned card);
static inline unsigned sim_stream_card(const struct sim_stream *stream, const struct sim_context *current) {
    return stream->context ? stream->context->card : current->card;
}

/* the usual beginning of calls with a stream: a context, and what the handle names */
#define STREAM(s, handle)                                                                                    \
    CURRENT(context_);                                                                                       \
    struct sim_stream *s;                                                                                    \
    do {                                                                                                     \
        CUresult found_ = sim_stream_of(handle, context_, &s);                                               \
        if (unlikely(found_))                                                                                \
            return found_;                                                                                   \
    } while (0)

/* ---- events (event.c) -----------------------------------------------------------------------------------
 */

void sim_events_forget(void);

/* 900 when a capture forbids calls that wait or are unsafe, else 0. */
CUresult sim_capture_forbids(void);

/* ---- graphs (graph.c) ---------------------------------------------------------------------------------- */

struct sim_graph {
    uint64_t magic, id;
    uint64_t nodes, kernels, ns;
};
CUgraph sim_graph_new(void);

/* ---- work (kernel.c, launch.c) ---------------------------------------------------------------------------
 */

/* The handle of a kernel; a name like gaia_spin_1000 says how many ns it takes. */
void *sim_kernel_named(const char *name);
/* How long a launch of so many blocks takes on a card; any pointer may be asked about. */
uint64_t sim_kernel_ns(const void *function, unsigned card, uint64_t blocks);
/* Run a graph as one piece of work as long as its kernels together; a capture records it instead. */
CUresult sim_launch_graph(CUstream handle, const struct sim_graph *graph);

#endif
