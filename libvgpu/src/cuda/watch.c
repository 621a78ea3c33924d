/* watch.c - the watcher: one thread per process from its first metered launch on. Awake every millisecond
 * while there is work that nobody has measured, asleep for good otherwise. */
#include "cuda/meter.h"

#define TICK_NS UINT64_C(1000000)
#define LINGER 8 /* quiet ticks before it goes to sleep: a wake costs a system call of a launch */

/* The stream's context must be current for the calls that name a stream. */
static bool enter(const struct gaia_driver *driver, const struct gaia_lane *lane, void **current) {
    if (*current != lane->context && driver->cuCtxSetCurrent(lane->context) != GAIA_CU_SUCCESS)
        return false;
    *current = lane->context;
    return true;
}

/* With the lock held. Whether there is anything left to watch. */
static bool tick(struct gaia_process *self, const struct gaia_driver *driver) {
    struct gaia_meter *meter = &self->meter;
    uint64_t now = gaia_prim_now();
    void *current = NULL;
    bool more = false, capturing = atomic_load_explicit(&meter->captures, memory_order_relaxed) != 0;
    for (unsigned i = 0; i < GAIA_LANES; i++) {
        struct gaia_lane *lane = &meter->lane[i];
        if (atomic_load_explicit(&lane->tag, memory_order_relaxed) == 0 || gaia_lane_idle(lane) ||
            !enter(driver, lane, &current))
            continue;
        bool here = !lane->per_thread && !capturing && lane->stream_known;
        gaia_lane_settle(self, driver, lane, here, now);
        gaia_lane_collect(self, lane, now);
        if (lane->open_launches && lane->submitting == 0 && here)
            gaia_lane_mark(driver, lane, true);
        /* what only its own thread can close is no reason to stay awake */
        more |= lane->per_thread ? gaia_lane_pending(lane) && lane->blind_ns == 0
                                 : gaia_lane_pending(lane) || (lane->open_launches && here);
    }
    if (current)
        driver->cuCtxSetCurrent(NULL); /* a context that is current somewhere is not destroyed in full */
    return more;
}

static void *watch(void *argument) {
    struct gaia_process *self = argument;
    struct gaia_meter *meter = &self->meter;
    const struct gaia_driver *driver = gaia_driver();
    int mode = GAIA_CU_CAPTURE_RELAXED; /* so that no call of ours spoils a capture of the program's */
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    for (unsigned quiet = 0;;) {
        gaia_process_enter(); /* looks whether the pages may still be touched */
        gaia_lock_take(&meter->lock);
        if (atomic_load_explicit(&meter->ended, memory_order_relaxed)) {
            gaia_lock_drop(&meter->lock);
            return NULL;
        }
        quiet = tick(self, driver) ? 0 : quiet + 1;
        bool sleep = quiet > LINGER;
        uint32_t bell = (uint32_t)gaia_peek(&meter->bell);
        meter->asleep = sleep;
        gaia_lock_drop(&meter->lock);
        if (sleep) {
            gaia_prim_wait(&meter->bell, bell, 0, false);
            quiet = 0;
        } else
            gaia_prim_sleep(TICK_NS);
    }
}

bool gaia_watch(struct gaia_process *self) {
    struct gaia_meter *meter = &self->meter;
    if (meter->watch == GAIA_WATCH_NONE)
        meter->watch = gaia_prim_thread(watch, self) ? GAIA_WATCH_RUNS : GAIA_WATCH_FAILED;
    else if (meter->asleep) {
        meter->asleep = false;
        atomic_fetch_add_explicit(&meter->bell, 1, memory_order_relaxed); /* the lock orders it */
        gaia_prim_wake(&meter->bell);
    }
    return meter->watch == GAIA_WATCH_RUNS;
}

/* Before the driver takes itself apart: once the lock was ours, the watcher is outside the driver for good.
 * Launches of other exit handlers go on asking, and settle by themselves. */
__attribute__((destructor)) static void end(void) {
    struct gaia_process *self = gaia_process_known();
    if (!self || self->meter.watch != GAIA_WATCH_RUNS)
        return;
    atomic_store_explicit(&self->meter.ended, true, memory_order_relaxed);
    for (unsigned tries = 0; tries < 100; tries++) {
        if (gaia_lock_try(&self->meter.lock)) {
            self->meter.watch = GAIA_WATCH_FAILED;
            gaia_lock_drop(&self->meter.lock);
            return;
        }
        gaia_prim_sleep(TICK_NS / 10); /* the holder may have been a thread that is no more */
    }
}
