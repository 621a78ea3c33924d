/* launch.c - every way to give a card work, each held to the slot's rate. Copies pass: they take copy
 * engines, not the multiprocessors. */
#include "cuda/meter.h"

#define KERNEL function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters

/* CALL with the metering around it. The driver's answer is handed on unchanged. */
#define METERED(the_stream, per_thread, call)                                                                \
    do {                                                                                                     \
        struct gaia_lane *lane_;                                                                             \
        gaia_cu_object stream_ = (the_stream);                                                               \
        enum gaia_go go_ = gaia_go(stream_, per_thread, &lane_);                                             \
        if (__builtin_expect(go_ == GAIA_GO_FREE, 1))                                                        \
            return call;                                                                                     \
        if (__builtin_expect(go_ == GAIA_GO_CREDIT, 1)) {                                                    \
            int error_ = call;                                                                               \
            if (__builtin_expect(error_ != GAIA_CU_SUCCESS, 0))                                              \
                gaia_credit_failed(lane_);                                                                   \
            return error_;                                                                                   \
        }                                                                                                    \
        struct gaia_work work_ = {.stream = stream_, .ptsz = per_thread};                                    \
        gaia_work_ask(&work_);                                                                               \
        int error_ = call;                                                                                   \
        gaia_work_done(&work_, error_);                                                                      \
        return error_;                                                                                       \
    } while (0)

#define LAUNCH_KERNEL(name, per_thread)                                                                      \
    GAIA_EXPORT gaia_cu_result name(gaia_cu_object function, unsigned grid_x, unsigned grid_y,               \
                                    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,   \
                                    unsigned shared, gaia_cu_object stream, void **parameters,               \
                                    void **extra) {                                                          \
        METERED(stream, per_thread, gaia_driver()->name(KERNEL, extra));                                     \
    }
LAUNCH_KERNEL(cuLaunchKernel, false)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)

#define LAUNCH_COOPERATIVE(name, per_thread)                                                                 \
    GAIA_EXPORT gaia_cu_result name(gaia_cu_object function, unsigned grid_x, unsigned grid_y,               \
                                    unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,   \
                                    unsigned shared, gaia_cu_object stream, void **parameters) {             \
        METERED(stream, per_thread, gaia_driver()->name(KERNEL));                                            \
    }
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

#define LAUNCH_EX(name, per_thread)                                                                          \
    GAIA_EXPORT gaia_cu_result name(const gaia_cu_launch_config *config, gaia_cu_object function,            \
                                    void **parameters, void **extra) {                                       \
        if (!config)                                                                                         \
            return gaia_driver()->name(config, function, parameters, extra);                                 \
        METERED(config->stream, per_thread, gaia_driver()->name(config, function, parameters, extra));       \
    }
LAUNCH_EX(cuLaunchKernelEx, false)
LAUNCH_EX(cuLaunchKernelEx_ptsz, true)

/* The launches of the first CUDA versions; without a stream they go to the default one. */
GAIA_EXPORT gaia_cu_result cuLaunch(gaia_cu_object function) {
    METERED(NULL, false, gaia_driver()->cuLaunch(function));
}
GAIA_EXPORT gaia_cu_result cuLaunchGrid(gaia_cu_object function, int width, int height) {
    METERED(NULL, false, gaia_driver()->cuLaunchGrid(function, width, height));
}
GAIA_EXPORT gaia_cu_result cuLaunchGridAsync(gaia_cu_object function, int width, int height,
                                             gaia_cu_object stream) {
    METERED(stream, false, gaia_driver()->cuLaunchGridAsync(function, width, height, stream));
}

/* ---- one call for several devices: each part asks on its own stream's context --------------------- */

#define MOST_PARTS 32

static void with_context(const struct gaia_driver *driver, gaia_cu_object stream, struct gaia_work *work,
                         bool asks, int error) {
    gaia_cu_object context = NULL;
    bool pushed = (uintptr_t)stream > GAIA_CU_STREAM_PER_THREAD &&
                  driver->cuStreamGetCtx(stream, &context) == GAIA_CU_SUCCESS && context &&
                  driver->cuCtxPushCurrent_v2(context) == GAIA_CU_SUCCESS;
    if (asks)
        gaia_work_ask(work);
    else
        gaia_work_done(work, error);
    if (pushed)
        driver->cuCtxPopCurrent_v2(&context);
}

GAIA_EXPORT gaia_cu_result cuLaunchCooperativeKernelMultiDevice(gaia_cu_launch_params *list, unsigned count,
                                                                unsigned flags) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_work work[MOST_PARTS];
    struct gaia_process *self = gaia_process_known();
    unsigned parts = list == NULL || (self && gaia_gate_open(self)) ? 0 : count;
    if (parts > MOST_PARTS) /* more than any machine has devices: the driver refuses it */
        parts = MOST_PARTS;
    for (unsigned i = 0; i < parts; i++) {
        work[i] = (struct gaia_work){.stream = list[i].stream};
        with_context(driver, list[i].stream, &work[i], true, 0);
    }
    int error = driver->cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    for (unsigned i = parts; i-- > 0;)
        with_context(driver, list[i].stream, &work[i], false, error);
    return error;
}

/* ---- ends of streams -------------------------------------------------------------------------------- */

GAIA_EXPORT gaia_cu_result cuStreamDestroy(gaia_cu_object stream) {
    gaia_meter_stream_ends(stream);
    return gaia_driver()->cuStreamDestroy(stream);
}
GAIA_EXPORT gaia_cu_result cuStreamDestroy_v2(gaia_cu_object stream) {
    gaia_meter_stream_ends(stream);
    return gaia_driver()->cuStreamDestroy_v2(stream);
}
