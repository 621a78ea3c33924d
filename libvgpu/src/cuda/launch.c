/* launch.c - every way to give a card work, each held to the slot's rate. Copies pass: they take copy
 * engines, not the multiprocessors. */
#include "cuda/meter.h"

/* What asks is a function of its own, so that no other launch saves registers for it.
 *
 * The fast ways read the driver's functions without asking whether they have been found: whoever opened the
 * gate, or gave a credit, had asked the driver before, and both are acquired. */
#define METERED(name, declared, passed, the_stream, per_thread, the_kind)                                    \
    static __attribute__((noinline, noclone, cold)) gaia_cu_result asks_##name declared {                    \
        struct gaia_work work = {.stream = (the_stream), .ptsz = per_thread, .kind = (the_kind)};            \
        gaia_work_ask(&work);                                                                                \
        int error = gaia_driver()->name passed;                                                              \
        gaia_work_done(&work, error);                                                                        \
        return error;                                                                                        \
    }                                                                                                        \
    GAIA_EXPORT gaia_cu_result name declared {                                                               \
        struct gaia_process *self = gaia_process_known();                                                    \
        if (__builtin_expect(self == NULL, 0))                                                               \
            return asks_##name passed;                                                                       \
        if (__builtin_expect(gaia_gate_open(self), 1))                                                       \
            return gaia_driver_calls.name passed;                                                            \
        struct gaia_credit credit = gaia_take_credit(self, the_stream, per_thread, the_kind);                \
        if (__builtin_expect(credit.lane == NULL, 0))                                                        \
            return asks_##name passed;                                                                       \
        int error = gaia_driver_calls.name passed;                                                           \
        if (__builtin_expect(error != GAIA_CU_SUCCESS, 0))                                                   \
            gaia_credit_failed(credit);                                                                      \
        return error;                                                                                        \
    }

#define KERNEL                                                                                               \
    gaia_cu_object function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,            \
        unsigned block_y, unsigned block_z, unsigned shared, gaia_cu_object stream, void **parameters
#define KIND gaia_kernel_kind(function, grid_x, grid_y, grid_z)
#define PASSED function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters
METERED(cuLaunchKernel, (KERNEL, void **extra), (PASSED, extra), stream, false, KIND)
METERED(cuLaunchKernel_ptsz, (KERNEL, void **extra), (PASSED, extra), stream, true, KIND)
METERED(cuLaunchCooperativeKernel, (KERNEL), (PASSED), stream, false, KIND)
METERED(cuLaunchCooperativeKernel_ptsz, (KERNEL), (PASSED), stream, true, KIND)

/* Without a configuration there is no stream, and the driver refuses the call. */
#define STREAM config ? config->stream : NULL
#define EX_KIND config ? gaia_kernel_kind(function, config->grid[0], config->grid[1], config->grid[2]) : 1
#define EX const gaia_cu_launch_config *config, gaia_cu_object function, void **parameters, void **extra
METERED(cuLaunchKernelEx, (EX), (config, function, parameters, extra), STREAM, false, EX_KIND)
METERED(cuLaunchKernelEx_ptsz, (EX), (config, function, parameters, extra), STREAM, true, EX_KIND)

/* The launches of the first CUDA versions; without a stream they go to the default one. */
METERED(cuLaunch, (gaia_cu_object function), (function), NULL, false, gaia_kernel_kind(function, 1, 1, 1))
#define GRID_KIND gaia_kernel_kind(function, (unsigned)width, (unsigned)height, 1)
METERED(cuLaunchGrid, (gaia_cu_object function, int width, int height), (function, width, height), NULL,
        false, GRID_KIND)
METERED(cuLaunchGridAsync, (gaia_cu_object function, int width, int height, gaia_cu_object stream),
        (function, width, height, stream), stream, false, GRID_KIND)

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
    unsigned parts = list == NULL || gaia_unmetered() ? 0 : count;
    if (parts > MOST_PARTS) /* more than any machine has devices: the driver refuses it */
        parts = MOST_PARTS;
    for (unsigned i = 0; i < parts; i++) {
        work[i] = (struct gaia_work){
            .stream = list[i].stream,
            .kind = gaia_kernel_kind(list[i].function, list[i].grid[0], list[i].grid[1], list[i].grid[2])};
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
