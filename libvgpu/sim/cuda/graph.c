/* graph.c - stream capture and graphs, as far as counting what they will launch. */
#include "cuda.h"
#include <stdlib.h>

#define GRAPH_MAGIC UINT64_C(0x4772617068212121)

static _Atomic int global_captures; /* captures in the mode that forbids unsafe calls everywhere */
static _Atomic uint64_t next_id = 1;
static __thread int thread_mode; /* cuThreadExchangeStreamCaptureMode; 2 = relaxed */

CUresult sim_capture_forbids(void) {
    if (likely(atomic_load_explicit(&global_captures, memory_order_relaxed) == 0))
        return CUDA_SUCCESS;
    return thread_mode == 2 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUgraph sim_graph_new(void) {
    struct sim_graph *g = calloc(1, sizeof *g);
    if (g) {
        g->magic = GRAPH_MAGIC;
        g->id = atomic_fetch_add(&next_id, 1);
    }
    return g;
}

static bool valid(const struct sim_graph *g) {
    return g && (uintptr_t)g % 16 == 0 && g->magic == GRAPH_MAGIC;
}

static CUresult stream_of(CUstream handle, struct sim_stream **out) {
    CURRENT(c);
    return sim_stream_of(handle, c, out);
}

ENTRY cuStreamBeginCapture_v2(CUstream handle, int mode) {
    struct sim_stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (mode < 0 || mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    if ((uintptr_t)handle <= 1) /* the legacy default stream cannot be captured */
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    s->graph = sim_graph_new();
    if (!s->graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    s->capture = 1;
    s->mode = mode;
    s->capture_id = s->graph->id;
    if (mode == 0)
        atomic_fetch_add(&global_captures, 1);
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamBeginCapture_v2, (CUstream s, int mode), (THREADS(s), mode))
ENTRY cuStreamBeginCapture(CUstream handle) { return cuStreamBeginCapture_v2(handle, 0); }
PER_THREAD(cuStreamBeginCapture, (CUstream s), (THREADS(s)))

ENTRY cuStreamEndCapture(CUstream handle, CUgraph *out) {
    struct sim_stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!s->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    *out = s->graph;
    s->graph = NULL;
    s->capture = 0;
    if (s->mode == 0)
        atomic_fetch_sub(&global_captures, 1);
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamEndCapture, (CUstream s, CUgraph *out), (THREADS(s), out))

ENTRY cuStreamIsCapturing(CUstream handle, int *status) {
    struct sim_stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = s->capture;
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamIsCapturing, (CUstream s, int *status), (THREADS(s), status))

ENTRY cuStreamGetCaptureInfo_v2(CUstream handle, int *status, uint64_t *id, CUgraph *graph,
                                const void ***deps, size_t *count) {
    struct sim_stream *s;
    CUresult result = stream_of(handle, &s);
    if (result)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = s->capture;
    if (id)
        *id = s->capture ? s->capture_id : 0;
    if (graph)
        *graph = s->graph;
    if (deps)
        *deps = NULL;
    if (count)
        *count = 0;
    return CUDA_SUCCESS;
}
PER_THREAD(cuStreamGetCaptureInfo_v2,
           (CUstream s, int *status, uint64_t *id, CUgraph *graph, const void ***deps, size_t *count),
           (THREADS(s), status, id, graph, deps, count))
ENTRY cuStreamGetCaptureInfo_v3(CUstream handle, int *status, uint64_t *id, CUgraph *graph,
                                const void ***deps, const void **edges, size_t *count) {
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(handle, status, id, graph, deps, count);
}
PER_THREAD(cuStreamGetCaptureInfo_v3,
           (CUstream s, int *status, uint64_t *id, CUgraph *graph, const void ***deps, const void **edges,
            size_t *count),
           (THREADS(s), status, id, graph, deps, edges, count))
ENTRY cuStreamGetCaptureInfo(CUstream handle, int *status, uint64_t *id) {
    return cuStreamGetCaptureInfo_v2(handle, status, id, NULL, NULL, NULL);
}
PER_THREAD(cuStreamGetCaptureInfo, (CUstream s, int *status, uint64_t *id), (THREADS(s), status, id))

ENTRY cuThreadExchangeStreamCaptureMode(int *mode) {
    READY();
    if (!mode || *mode < 0 || *mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    int was = thread_mode;
    thread_mode = *mode;
    *mode = was;
    return CUDA_SUCCESS;
}

/* ---- graphs ----------------------------------------------------------------------------------------------
 */

ENTRY cuGraphCreate(CUgraph *out, unsigned flags) {
    READY();
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_graph_new();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy(struct sim_graph *g) {
    READY();
    if (!valid(g))
        return CUDA_ERROR_INVALID_VALUE;
    g->magic = 0;
    free(g);
    return CUDA_SUCCESS;
}
ENTRY cuGraphDestroy(CUgraph g) { return destroy(g); }
ENTRY cuGraphExecDestroy(CUgraph g) { return destroy(g); }

ENTRY cuGraphGetNodes(CUgraph g, void **nodes, size_t *count) {
    READY();
    if (!valid(g) || !count || nodes)
        return nodes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    *count = g->nodes;
    return CUDA_SUCCESS;
}

/* CUDA_KERNEL_NODE_PARAMS: a function, then the grid */
ENTRY cuGraphAddKernelNode_v2(void **node, CUgraph g, const void *deps, size_t count,
                              const void *parameters) {
    const struct {
        void *function;
        unsigned grid[3];
    } *p = parameters;
    READY();
    if (!node || !valid(g) || !p)
        return CUDA_ERROR_INVALID_VALUE;
    g->nodes++;
    g->kernels++;
    /* of the current context's card; without one, of the first */
    struct sim_context *c = NULL;
    unsigned card = sim_current(&c) == CUDA_SUCCESS ? c->card : sim_devices[0].card;
    g->ns += sim_kernel_ns(p->function, card, (uint64_t)p->grid[0] * p->grid[1] * p->grid[2]);
    *node = (void *)(uintptr_t)(g->id << 20 | g->nodes);
    return CUDA_SUCCESS;
}
SAME(cuGraphAddKernelNode, cuGraphAddKernelNode_v2);

ENTRY cuGraphAddEmptyNode(void **node, CUgraph g, const void *deps, size_t count) {
    READY();
    if (!node || !valid(g))
        return CUDA_ERROR_INVALID_VALUE;
    g->nodes++;
    *node = (void *)(uintptr_t)(g->id << 20 | g->nodes);
    return CUDA_SUCCESS;
}

ENTRY cuGraphInstantiateWithFlags(CUgraph *out, CUgraph g, unsigned long long flags) {
    CURRENT(c);
    (void)c;
    if (!out || !valid(g))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_graph *e = sim_graph_new();
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->nodes = g->nodes;
    e->kernels = g->kernels;
    e->ns = g->ns;
    *out = e;
    return CUDA_SUCCESS;
}
ENTRY cuGraphInstantiate_v2(CUgraph *out, CUgraph g, void **node, char *log, size_t size) {
    if (log && size)
        *log = 0;
    return cuGraphInstantiateWithFlags(out, g, 0);
}
SAME(cuGraphInstantiate, cuGraphInstantiate_v2);

struct instantiate {
    uint64_t flags;
    CUstream upload;
    void *error_node;
    int result;
};
ENTRY cuGraphInstantiateWithParams(CUgraph *out, CUgraph g, struct instantiate *p) {
    CUresult result = p ? cuGraphInstantiateWithFlags(out, g, p->flags) : CUDA_ERROR_INVALID_VALUE;
    if (p) {
        p->error_node = NULL;
        p->result = result != CUDA_SUCCESS;
    }
    return result;
}
SAME(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams);

ENTRY cuGraphUpload(CUgraph e, CUstream handle) {
    CURRENT(c);
    (void)c;
    return valid(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SAME(cuGraphUpload_ptsz, cuGraphUpload);

ENTRY cuGraphLaunch(CUgraph e, CUstream handle) {
    READY();
    return valid(e) ? sim_launch_graph(handle, e) : CUDA_ERROR_INVALID_VALUE;
}
PER_THREAD(cuGraphLaunch, (CUgraph e, CUstream s), (e, THREADS(s)))
