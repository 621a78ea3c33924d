/* graph.c - allocation nodes of graphs, and stream capture, which makes such nodes. A node takes no
 * memory; the card's graph memory is taken when a graph is uploaded or launched and kept until it is
 * trimmed. Programs without allocation nodes pay one load per graph launch. */
#include "cuda/meter.h"
#include "cuda/pool.h"

static void node_added(const gaia_cu_alloc_node *params) {
    struct gaia_process *self = gaia_process_enter();
    if (!self || !params || params->pool.location.type != GAIA_CU_LOCATION_DEVICE)
        return;
    gaia_lock_take(&self->pooling);
    self->graph_bytes = gaia_sum(self->graph_bytes, params->bytes);
    gaia_lock_drop(&self->pooling);
}

GAIA_EXPORT gaia_cu_result cuGraphAddMemAllocNode(gaia_cu_object *node, gaia_cu_object graph,
                                                  const void *dependencies, size_t count,
                                                  gaia_cu_alloc_node *params) {
    int error = gaia_driver()->cuGraphAddMemAllocNode(node, graph, dependencies, count, params);
    if (error == GAIA_CU_SUCCESS)
        node_added(params);
    return error;
}

GAIA_EXPORT gaia_cu_result cuGraphAddNode(gaia_cu_object *node, gaia_cu_object graph,
                                          const void *dependencies, size_t count,
                                          gaia_cu_node_params *params) {
    int error = gaia_driver()->cuGraphAddNode(node, graph, dependencies, count, params);
    if (error == GAIA_CU_SUCCESS && params->type == GAIA_CU_GRAPH_NODE_ALLOC)
        node_added(&params->alloc);
    return error;
}

GAIA_EXPORT gaia_cu_result cuGraphAddNode_v2(gaia_cu_object *node, gaia_cu_object graph,
                                             const void *dependencies, const void *edges, size_t count,
                                             gaia_cu_node_params *params) {
    int error = gaia_driver()->cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
    if (error == GAIA_CU_SUCCESS && params->type == GAIA_CU_GRAPH_NODE_ALLOC)
        node_added(&params->alloc);
    return error;
}

GAIA_EXPORT gaia_cu_result cuGraphAddNode_v3(gaia_cu_object *node, gaia_cu_object graph,
                                             const void *dependencies, const void *edges, size_t count,
                                             gaia_cu_node_params *params) {
    int error = gaia_driver()->cuGraphAddNode_v3(node, graph, dependencies, edges, count, params);
    if (error == GAIA_CU_SUCCESS && params->type == GAIA_CU_GRAPH_NODE_ALLOC)
        node_added(&params->alloc);
    return error;
}

/* With self->pooling held: charge what the card's graph memory is now. */
static void follow(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                   unsigned card, struct gaia_usage_card *words, uint64_t announced) {
    uint64_t before = self->graph_charge[card], now = gaia_sum(before, announced);
    driver->cuDeviceGetGraphMemAttribute(device, GAIA_CU_GRAPH_RESERVED, &now);
    uint64_t grown = now > before ? now - before : 0;
    if (words)
        gaia_settle(words, announced, grown);
    if (now < before)
        gaia_uncharge(self, card, before - now);
    self->graph_bytes -= grown < self->graph_bytes ? grown : self->graph_bytes;
    self->graph_charge[card] = now;
}

static int start_counted(struct gaia_process *self, gaia_cu_result (*call)(gaia_cu_object, gaia_cu_object),
                         gaia_cu_object graph, gaia_cu_object stream) {
    const struct gaia_driver *driver = gaia_driver();
    gaia_cu_device device;
    int error = driver->cuCtxGetDevice(&device);
    if (error)
        return error;
    if (!gaia_process_enter())
        return GAIA_CU_OUT_OF_MEMORY;
    int card = gaia_card(self, driver, device, &error);
    if (card < 0)
        return error ? error : GAIA_CU_OUT_OF_MEMORY;
    gaia_pools_refresh(self, driver, (unsigned)card);
    gaia_lock_take(&self->pooling);
    uint64_t announced = self->graph_bytes; /* which graph the nodes are in is not known: all of them */
    struct gaia_usage_card *words = gaia_claim(self, (unsigned)card, announced);
    if (!words)
        error = GAIA_CU_OUT_OF_MEMORY;
    else if ((error = call(graph, stream)) == GAIA_CU_SUCCESS)
        follow(self, driver, device, (unsigned)card, words, announced);
    else
        gaia_settle(words, announced, 0);
    gaia_lock_drop(&self->pooling);
    return error;
}

static int start(gaia_cu_result (*call)(gaia_cu_object, gaia_cu_object), gaia_cu_object graph,
                 gaia_cu_object stream) {
    struct gaia_process *self = gaia_process_known();
    /* Read without the lock: a program that launches a graph in one thread while another still adds
     * nodes to it has no order to rely on either. */
    if (__builtin_expect(!self || self->graph_bytes == 0, 1))
        return call(graph, stream);
    return start_counted(self, call, graph, stream);
}

GAIA_EXPORT gaia_cu_result cuGraphUpload(gaia_cu_object graph, gaia_cu_object stream) {
    return start(gaia_driver()->cuGraphUpload, graph, stream);
}
GAIA_EXPORT gaia_cu_result cuGraphUpload_ptsz(gaia_cu_object graph, gaia_cu_object stream) {
    return start(gaia_driver()->cuGraphUpload_ptsz, graph, stream);
}

/* One graph is one launch with a cost of its own; it never goes on credit. */
static int launch(gaia_cu_result (*call)(gaia_cu_object, gaia_cu_object), gaia_cu_object graph,
                  gaia_cu_object stream, bool per_thread) {
    if (gaia_unmetered())
        return start(call, graph, stream);
    struct gaia_work work = {
        .stream = stream, .ptsz = per_thread, .kind = gaia_graph_kind(graph), .graph = true};
    gaia_work_ask(&work);
    int error = start(call, graph, stream);
    gaia_work_done(&work, error);
    return error;
}
GAIA_EXPORT gaia_cu_result cuGraphLaunch(gaia_cu_object graph, gaia_cu_object stream) {
    return launch(gaia_driver()->cuGraphLaunch, graph, stream, false);
}
GAIA_EXPORT gaia_cu_result cuGraphLaunch_ptsz(gaia_cu_object graph, gaia_cu_object stream) {
    return launch(gaia_driver()->cuGraphLaunch_ptsz, graph, stream, true);
}

GAIA_EXPORT gaia_cu_result cuDeviceGraphMemTrim(gaia_cu_device device) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuDeviceGraphMemTrim(device), unknown;
    struct gaia_process *self = error == GAIA_CU_SUCCESS ? gaia_process_known() : NULL;
    if (!self || !gaia_process_enter())
        return error;
    int card = gaia_card(self, driver, device, &unknown);
    gaia_lock_take(&self->pooling);
    if (card >= 0 && self->graph_charge[card] != 0)
        follow(self, driver, device, (unsigned)card, NULL, 0);
    gaia_lock_drop(&self->pooling);
    return error;
}

/* ---- capture: only remembered; while one is open, allocations ask whether theirs is part of it ------ */

static int began(int error) {
    struct gaia_process *self = gaia_process_state();
    if (error == GAIA_CU_SUCCESS && self)
        atomic_store_explicit(&self->captured, true, memory_order_relaxed); /* for good: a hint, no count */
    if (error != GAIA_CU_SUCCESS)
        gaia_meter_capture(false);
    return error;
}

/* Before the driver's call: no event of ours may fall into the capture. */
static const struct gaia_driver *beginning(void) {
    gaia_meter_capture(true);
    return gaia_driver();
}

static int ended(int error) {
    if (error == GAIA_CU_SUCCESS || error == GAIA_CU_CAPTURE_INVALIDATED) /* that ends it too */
        gaia_meter_capture(false);
    return error;
}

GAIA_EXPORT gaia_cu_result cuStreamEndCapture(gaia_cu_object stream, gaia_cu_object *graph) {
    return ended(gaia_driver()->cuStreamEndCapture(stream, graph));
}
GAIA_EXPORT gaia_cu_result cuStreamEndCapture_ptsz(gaia_cu_object stream, gaia_cu_object *graph) {
    return ended(gaia_driver()->cuStreamEndCapture_ptsz(stream, graph));
}
GAIA_EXPORT gaia_cu_result cuStreamEndCaptureToCig(gaia_cu_object stream) {
    return ended(gaia_driver()->cuStreamEndCaptureToCig(stream));
}
GAIA_EXPORT gaia_cu_result cuStreamEndCaptureToCig_ptsz(gaia_cu_object stream) {
    return ended(gaia_driver()->cuStreamEndCaptureToCig_ptsz(stream));
}

GAIA_EXPORT gaia_cu_result cuStreamBeginCapture(gaia_cu_object stream) {
    return began(beginning()->cuStreamBeginCapture(stream));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCapture_ptsz(gaia_cu_object stream) {
    return began(beginning()->cuStreamBeginCapture_ptsz(stream));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCapture_v2(gaia_cu_object stream, int mode) {
    return began(beginning()->cuStreamBeginCapture_v2(stream, mode));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCapture_v2_ptsz(gaia_cu_object stream, int mode) {
    return began(beginning()->cuStreamBeginCapture_v2_ptsz(stream, mode));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCaptureToGraph(gaia_cu_object stream, gaia_cu_object graph,
                                                       const void *dependencies, const void *edges,
                                                       size_t count, int mode) {
    return began(beginning()->cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCaptureToGraph_ptsz(gaia_cu_object stream, gaia_cu_object graph,
                                                            const void *dependencies, const void *edges,
                                                            size_t count, int mode) {
    return began(
        beginning()->cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, edges, count, mode));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginRecaptureToGraph(gaia_cu_object stream, int mode,
                                                         gaia_cu_object graph, void *call, void *user) {
    return began(beginning()->cuStreamBeginRecaptureToGraph(stream, mode, graph, call, user));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginRecaptureToGraph_ptsz(gaia_cu_object stream, int mode,
                                                              gaia_cu_object graph, void *call, void *user) {
    return began(beginning()->cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, call, user));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCaptureToCig(gaia_cu_object stream, void *params) {
    return began(beginning()->cuStreamBeginCaptureToCig(stream, params));
}
GAIA_EXPORT gaia_cu_result cuStreamBeginCaptureToCig_ptsz(gaia_cu_object stream, void *params) {
    return began(beginning()->cuStreamBeginCaptureToCig_ptsz(stream, params));
}
