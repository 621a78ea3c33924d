/* meter.c - a launch asks: which card, at what rate, when. */
#include "cuda/meter.h"

#define CREDIT_NS UINT64_C(250000)      /* of estimated work that may go without asking again */
#define IN_FLIGHT_NS UINT64_C(40000000) /* at the whole card, in proportion below */
#define SOME 8                          /* one launch of so many that ask */
#define LONGEST_NS UINT64_C(1000000000) /* no launch waits longer */
#define LOOK_NS UINT64_C(10000000)      /* a waiting launch looks again at least so often */
#define QUEUE_NS UINT64_C(200000)       /* and when it waits for work to be done */

static bool capturing(const struct gaia_driver *driver, const struct gaia_work *work) {
    int status = 0;
    int error = work->ptsz ? driver->cuStreamIsCapturing_ptsz(work->stream, &status)
                           : driver->cuStreamIsCapturing(work->stream, &status);
    return error == GAIA_CU_SUCCESS && status != 0;
}

static bool any_captures(struct gaia_process *self) {
    return atomic_load_explicit(&self->meter.captures, memory_order_relaxed) != 0;
}

/* While some stream captures, a thread may be forbidden calls on others that could disturb it. Ours cannot,
 * and this says so; the watcher leaves all streams alone meanwhile. Returns what unrelax goes back to. */
static int relax(struct gaia_process *self, const struct gaia_driver *driver) {
    int mode = GAIA_CU_CAPTURE_RELAXED;
    if (!any_captures(self) || driver->cuThreadExchangeStreamCaptureMode(&mode) != GAIA_CU_SUCCESS)
        return GAIA_CU_CAPTURE_RELAXED;
    return mode;
}

static void unrelax(const struct gaia_driver *driver, int mode) {
    if (mode != GAIA_CU_CAPTURE_RELAXED)
        driver->cuThreadExchangeStreamCaptureMode(&mode);
}

/* All cards unlimited: the gate opens until the agent writes again. */
static void try_gate(struct gaia_process *self) {
    const struct gaia_limits *limits = self->limits;
    uint64_t sequence = gaia_read(&limits->sequence), now = gaia_prim_now();
    if (sequence % 2 != 0)
        return;
    for (unsigned i = 0; i < GAIA_CARDS; i++)
        if ((gaia_peek(&limits->card[i].uuid[0]) | gaia_peek(&limits->card[i].uuid[1])) != 0 &&
            gaia_pace_read(limits, i, now).metered)
            return;
    atomic_store_explicit(&self->meter.gate_value, sequence, memory_order_relaxed);
    /* Release: whoever sees the gate sees its value. */
    atomic_store_explicit(&self->meter.gate, &limits->sequence, memory_order_release);
}

/* The card behind DEVICE, its pace read anew where there is a page to read. One that was never known has a
 * pace of zeros, which is hardly any. */
static unsigned find_card(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                          uint64_t now) {
    int error, found = -1;
    uint8_t *remembered = &self->meter.card_of_device[(unsigned)device % GAIA_DEVICES];
    if (gaia_process_enter())
        found = gaia_card(self, driver, device, &error);
    if (found < 0)
        return *remembered ? *remembered - 1u : 0;
    *remembered = (uint8_t)(found + 1);
    self->meter.card[found].pace = gaia_pace_read(self->limits, (unsigned)found, now);
    return (unsigned)found;
}

static uint64_t tag_of(struct gaia_process *self, const struct gaia_work *work, gaia_cu_object context) {
    struct gaia_meter *meter = &self->meter;
    if ((uintptr_t)work->stream == GAIA_CU_STREAM_PER_THREAD || (work->ptsz && work->stream == NULL))
        return gaia_prim_self() | 3;
    if (meter->first_context == NULL)
        meter->first_context = context;
    else if (meter->first_context != context)
        atomic_store_explicit(&meter->several, true, memory_order_relaxed);
    uint64_t tag = gaia_lane_tag(self, work->stream, work->ptsz);
    return tag ? tag : (uint64_t)(uintptr_t)context | 1;
}

static uint64_t paid(struct gaia_process *self, unsigned card) {
    return gaia_peek(gaia_process_place(self) ? &self->usage->bucket[card].paid_until_ns
                                              : &self->meter.card[card].paid);
}

/* How long to wait before looking again; 0 = go. *debt: because the bucket says so. */
static uint64_t must_wait(struct gaia_process *self, const struct gaia_work *work, unsigned card,
                          uint64_t now, bool *debt) {
    struct gaia_meter *meter = &self->meter;
    struct gaia_meter_card *c = &meter->card[card];
    uint64_t wait = c->pace.rate < GAIA_FULL_PPM ? gaia_bucket_wait(paid(self, card), now) : 0;
    *debt = wait != 0;
    if (wait)
        return wait < LOOK_NS ? wait : LOOK_NS;
    bool unmeasured = work->cost == 0 && gaia_lane_pending(work->lane);
    if (unmeasured || gaia_card_late(meter, card, now) ||
        (c->in_flight && c->in_flight + work->cost > IN_FLIGHT_NS / GAIA_FULL_PPM * c->pace.rate))
        return QUEUE_NS;
    return 0;
}

/* Sleep with the lock dropped; a store of the agent's ends it early. */
static void wait(struct gaia_process *self, unsigned card, uint64_t ns) {
    const gaia_word *word = gaia_process_place(self) ? &self->limits->card[card].futex : NULL;
    uint32_t value = word ? (uint32_t)gaia_read(word) : 0;
    gaia_lock_drop(&self->meter.lock);
    if (word)
        gaia_prim_wait(word, value, ns, true);
    else
        gaia_prim_sleep(ns);
    gaia_process_enter();
    gaia_lock_take(&self->meter.lock);
}

/* Settle what is done and close the open stretch, so that no wait is measured as work. */
static void look(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                 uint64_t now) {
    struct gaia_meter *meter = &self->meter;
    gaia_lane_collect(self, lane, now);
    gaia_lane_settle(self, driver, lane, true, now);
    if (lane->open_launches && lane->submitting == 0)
        gaia_lane_mark(driver, lane, true);
    for (unsigned i = 0; i < GAIA_LANES; i++)
        if (&meter->lane[i] != lane && meter->lane[i].card == lane->card &&
            gaia_lane_pending(&meter->lane[i]) && meter->lane[i].context == lane->context)
            gaia_lane_settle(self, driver, &meter->lane[i], false, now);
}

/* False: this kind of launch has never been measured. */
static bool wait_for_turn(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_work *work,
                          unsigned card) {
    struct gaia_meter_card *c = &self->meter.card[card];
    uint64_t start = gaia_prim_now(), now = start, throttled = 0;
    bool known;
    for (;;) {
        bool debt;
        look(self, driver, work->lane, now);
        work->cost = gaia_cost(&self->meter, card, work, &known);
        uint64_t ns = must_wait(self, work, card, now, &debt);
        if (ns == 0 || now - start >= LONGEST_NS)
            break;
        wait(self, card, ns < start + LONGEST_NS - now ? ns : start + LONGEST_NS - now);
        uint64_t woken = gaia_prim_now();
        throttled += debt ? woken - now : 0;
        now = woken;
        if (gaia_process_place(self))
            c->pace = gaia_pace_read(self->limits, card, now);
    }
    struct gaia_usage_card *words = throttled ? gaia_card_words(self, card) : NULL;
    if (words)
        gaia_charge(&words->throttled_ns, throttled);
    return known;
}

static uint64_t dice(struct gaia_meter *meter, uint64_t sides) {
    meter->dice = meter->dice * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (meter->dice >> 33) % sides;
}

/* Some fewer at times, so that the launches that are measured one by one are not always the same ones of
 * a program's loop. */
static uint64_t credits_for(struct gaia_process *self, const struct gaia_work *work,
                            const struct gaia_lane *lane) {
    struct gaia_meter *meter = &self->meter;
    const struct gaia_meter_card *c = &meter->card[lane->card];
    uint64_t tag = atomic_load_explicit(&lane->tag, memory_order_relaxed);
    if (work->graph || work->cost == 0 || c->cost == 0 || c->cost > CREDIT_NS / 2 || lane->per_thread ||
        c->trust == 0 || lane->blind_ns || any_captures(self) || lane != &meter->lane[gaia_lane_home(tag)] ||
        lane->granted)
        return 0;
    return GAIA_CREDIT(CREDIT_NS - dice(meter, CREDIT_NS / 2), c->trust);
}

static void pay(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_work *work,
                unsigned card, bool known) {
    struct gaia_lane *lane = work->lane;
    struct gaia_meter_card *c = &self->meter.card[card];
    uint64_t now = gaia_prim_now();
    bool watched = gaia_watch(self);
    if (lane->blind_until > now && !gaia_lane_pending(lane))
        lane->blind_ns = now;
    else if (!gaia_lane_pending(lane) && lane->submitting == 0) {
        gaia_lane_mark(driver, lane, false);
        work->began_ns = lane->blind_ns ? 0 : gaia_lane_newest(lane)->after_ns;
        work->close = true;
    }
    /* On a stream that never runs dry some are measured one by one too: what a kind costs may change. */
    work->close |= work->graph || !known || lane->per_thread || !watched || any_captures(self) ||
                   dice(&self->meter, SOME) == 0;
    work->credits = watched ? credits_for(self, work, lane) : 0;
    uint64_t charge = work->cost + GAIA_CREDIT_NS(work->credits);
    if (c->pace.rate == 0 && charge == 0)
        charge = 1;
    gaia_card_use(self, card, now, (int64_t)charge);
    c->in_flight += charge;
    lane->submitting++;
    lane->open_launches++;
    lane->open_charged += work->cost;
    lane->open_kind = work->kind;
    lane->open_graph = work->graph;
}

/* With the lock held. More streams in use at once than can be told apart: wait for one to be done. */
static struct gaia_lane *lane_for(struct gaia_process *self, const struct gaia_driver *driver,
                                  const struct gaia_work *work, gaia_cu_object context, unsigned card) {
    struct gaia_meter *meter = &self->meter;
    struct gaia_lane *lane;
    uint64_t tag = tag_of(self, work, context);
    for (uint64_t waited = 0; waited < LONGEST_NS; waited += QUEUE_NS) {
        if ((lane = gaia_lane_of(self, work, tag, context, card)) != NULL)
            return lane;
        gaia_watch(self);
        for (unsigned i = 0; i < GAIA_LANES; i++)
            if (meter->lane[i].context == context)
                gaia_lane_settle(self, driver, &meter->lane[i], false, gaia_prim_now());
        wait(self, card, QUEUE_NS);
    }
    gaia_card_use(self, card, gaia_prim_now(), (int64_t)meter->card[card].cost);
    return NULL;
}

void gaia_work_ask(struct gaia_work *work) {
    const struct gaia_driver *driver = gaia_driver();
    struct gaia_process *self = gaia_process_state();
    gaia_cu_object context = NULL;
    gaia_cu_device device;
    work->lane = NULL;
    if (!self || driver->cuCtxGetDevice(&device) != GAIA_CU_SUCCESS ||
        driver->cuCtxGetCurrent(&context) != GAIA_CU_SUCCESS)
        return; /* the driver says why */
    if (any_captures(self) && capturing(driver, work))
        return;
    unsigned card = find_card(self, driver, device, gaia_prim_now());
    const struct gaia_pace *pace = &self->meter.card[card].pace;
    if (!pace->metered && pace->rate >= GAIA_FULL_PPM) {
        if (gaia_process_place(self))
            try_gate(self);
        return;
    }
    int mode = relax(self, driver);
    gaia_lock_take(&self->meter.lock);
    work->self = self;
    work->lane = lane_for(self, driver, work, context, card);
    if (work->lane) {
        work->lane->users++;
        bool known = wait_for_turn(self, driver, work, card);
        pay(self, driver, work, card, known);
    }
    gaia_lock_drop(&self->meter.lock);
    unrelax(driver, mode);
    work->call_ns = gaia_prim_now();
}

/* A kernel that found its stream idle cannot have begun before the driver was called for it. */
static void end_stretch(const struct gaia_driver *driver, struct gaia_work *work) {
    struct gaia_lane *lane = work->lane;
    uint32_t next = lane->next;
    bool ours =
        next != lane->first && work->began_ns == gaia_lane_newest(lane)->after_ns && lane->open_launches == 1;
    gaia_lane_mark(driver, lane, true);
    if (ours && lane->next != next)
        gaia_lane_newest(lane)->lag_ns = work->call_ns - work->began_ns;
}

void gaia_work_done(struct gaia_work *work, int error) {
    struct gaia_lane *lane = work->lane;
    struct gaia_process *self = work->self;
    if (!lane)
        return;
    const struct gaia_driver *driver = gaia_driver();
    int mode = relax(self, driver);
    gaia_lock_take(&self->meter.lock);
    uint64_t now = gaia_prim_now();
    uint64_t back = work->cost + GAIA_CREDIT_NS(work->credits);
    if (error) {
        lane->open_launches -= lane->open_launches != 0;
        lane->open_charged -= work->cost < lane->open_charged ? work->cost : lane->open_charged;
        gaia_card_use(self, lane->card, now, -(int64_t)back);
        gaia_card_landed(&self->meter.card[lane->card], back);
        if (lane->open_launches == 0)
            lane->blind_ns = 0;
    } else {
        struct gaia_usage_card *words = gaia_card_words(self, lane->card);
        if (words)
            gaia_charge(&words->launches, 1);
        if (work->close) {
            gaia_lane_settle(self, driver, lane, false, now);
            end_stretch(driver, work);
        }
        if (work->credits) {
            lane->granted = work->credits;
            atomic_store_explicit(&lane->price, self->meter.card[lane->card].cost, memory_order_relaxed);
            /* Release: whoever takes one sees that the driver has been found. */
            atomic_store_explicit(&lane->credits, lane->granted, memory_order_release);
        }
    }
    lane->submitting--;
    lane->users--;
    gaia_lock_drop(&self->meter.lock);
    unrelax(driver, mode);
}

/* ---- ends of streams, contexts and captures ------------------------------------------------------ */

void gaia_meter_stream_ends(gaia_cu_object stream) {
    struct gaia_process *self = gaia_process_known();
    if (!self || (uintptr_t)stream <= GAIA_CU_STREAM_PER_THREAD)
        return;
    const struct gaia_driver *driver = gaia_driver();
    int mode = relax(self, driver);
    gaia_lock_take(&self->meter.lock);
    for (unsigned i = 0; i < GAIA_LANES; i++) {
        struct gaia_lane *lane = &self->meter.lane[i];
        if (atomic_load_explicit(&lane->tag, memory_order_relaxed) != (uint64_t)(uintptr_t)stream)
            continue;
        look(self, driver, lane, gaia_prim_now());
        /* The markers go on living: what is under way is still measured, under a name of no stream. */
        atomic_store_explicit(&lane->tag, GAIA_LANE_CLOSED, memory_order_relaxed);
        lane->stream_known = false;
        if (lane->blind_ns)
            gaia_lane_drop(self, driver, lane, false);
    }
    gaia_lock_drop(&self->meter.lock);
    unrelax(driver, mode);
}

void gaia_meter_context_ends(gaia_cu_object context) {
    struct gaia_process *self = gaia_process_known();
    if (!self || !context)
        return;
    const struct gaia_driver *driver = gaia_driver();
    int mode = relax(self, driver);
    gaia_lock_take(&self->meter.lock);
    for (unsigned i = 0; i < GAIA_LANES; i++) {
        struct gaia_lane *lane = &self->meter.lane[i];
        if (lane->context != context || atomic_load_explicit(&lane->tag, memory_order_relaxed) == 0)
            continue;
        gaia_lane_settle(self, driver, lane, false, gaia_prim_now());
        gaia_lane_drop(self, driver, lane, true);
        atomic_store_explicit(&lane->tag, 0, memory_order_relaxed);
        lane->context = NULL;
    }
    if (self->meter.first_context == context)
        self->meter.first_context = NULL;
    gaia_lock_drop(&self->meter.lock);
    unrelax(driver, mode);
}

void gaia_meter_capture(bool begins) {
    struct gaia_process *self = gaia_process_state();
    if (!self)
        return;
    struct gaia_meter *meter = &self->meter;
    gaia_lock_take(&meter->lock);
    if (begins) {
        meter->captures++;
        /* No credits while one is open: each launch asks whether it is part of it. */
        for (unsigned i = 0; i < GAIA_LANES; i++)
            gaia_lane_collect(self, &meter->lane[i], gaia_prim_now());
    } else if (meter->captures)
        meter->captures--;
    gaia_lock_drop(&meter->lock);
}
