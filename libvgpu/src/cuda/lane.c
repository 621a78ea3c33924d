/* lane.c - streams that are measured: finding one's lane, credits, markers. */
#include "cuda/meter.h"

#define AT(lane, i) (&(lane)->marker[(i) % GAIA_MARKERS])

bool gaia_lane_pending(const struct gaia_lane *lane) {
    return (lane->next != lane->first && lane->first + 1 != lane->next) || lane->blind_ns != 0;
}

bool gaia_lane_idle(const struct gaia_lane *lane) {
    return !gaia_lane_pending(lane) && lane->open_launches == 0 && lane->granted == 0 && lane->users == 0;
}

static void take_over(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                      const struct gaia_work *work, uint64_t tag, gaia_cu_object context, unsigned card) {
    gaia_lane_drop(self, driver, lane, lane->context != context); /* events belong to a context */
    lane->blind_until = lane->unready_ns = lane->at_ns = 0;
    lane->stream = work->stream;
    lane->context = context;
    lane->per_thread = tag % 4 == 3;
    lane->stream_known = true;
    lane->ptsz = work->ptsz;
    lane->card = (uint8_t)card;
    atomic_store_explicit(&lane->credits, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->failed, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->tag, tag, memory_order_relaxed);
}

static uint64_t tag_of(const struct gaia_lane *lane) {
    return atomic_load_explicit(&lane->tag, memory_order_relaxed);
}

struct gaia_lane *gaia_lane_of(struct gaia_process *self, const struct gaia_work *work, uint64_t tag,
                               gaia_cu_object context, unsigned card) {
    struct gaia_meter *meter = &self->meter;
    struct gaia_lane *home = &meter->lane[gaia_lane_home(tag)], *spare = NULL;
    /* A lane away from home never has credits: its launches all ask. */
    for (unsigned i = 0; i < GAIA_LANES; i++) {
        struct gaia_lane *lane = &meter->lane[i];
        if (tag_of(lane) == tag && lane->context == context)
            return lane;
        if (gaia_lane_idle(lane) && (spare == NULL || lane == home || tag_of(lane) == 0) && spare != home)
            spare = lane;
    }
    if (spare)
        take_over(self, gaia_driver(), spare, work, tag, context, card);
    return spare;
}

void gaia_lane_collect(struct gaia_process *self, struct gaia_lane *lane, uint64_t now) {
    if (lane->granted == 0)
        return;
    uint64_t left = atomic_exchange_explicit(&lane->credits, 0, memory_order_relaxed);
    uint64_t failed = atomic_exchange_explicit(&lane->failed, 0, memory_order_relaxed);
    uint64_t back = GAIA_CREDIT_NS(left) + GAIA_CREDIT_NS(failed), given = GAIA_CREDIT_NS(lane->granted);
    uint64_t unused = GAIA_CREDIT_LAUNCHES(left) + GAIA_CREDIT_LAUNCHES(failed);
    uint64_t launches = GAIA_CREDIT_LAUNCHES(lane->granted);
    /* one taken before the last collection may have failed after it */
    back = back < given ? back : given;
    launches -= unused < launches ? unused : launches;
    lane->granted = 0;
    lane->open_launches += launches;
    lane->open_charged += given - back;
    gaia_card_landed(&self->meter.card[lane->card], back);
    gaia_card_use(self, lane->card, now, -(int64_t)back);
    struct gaia_usage_card *words = launches ? gaia_card_words(self, lane->card) : NULL;
    if (words)
        gaia_charge(&words->launches, launches);
}

static int record(const struct gaia_driver *driver, const struct gaia_lane *lane, gaia_cu_object event) {
    return lane->ptsz ? driver->cuEventRecord_ptsz(event, lane->stream)
                      : driver->cuEventRecord(event, lane->stream);
}

void gaia_lane_mark(const struct gaia_driver *driver, struct gaia_lane *lane, bool work) {
    if (lane->blind_ns || lane->next - lane->first >= GAIA_MARKERS)
        return; /* no room: the stretch grows until an older one is settled */
    struct gaia_marker *marker = AT(lane, lane->next);
    uint64_t now = gaia_prim_now();
    int error = marker->event ? GAIA_CU_SUCCESS : driver->cuEventCreate(&marker->event, 0);
    if (error == GAIA_CU_SUCCESS)
        error = record(driver, lane, marker->event);
    if (error != GAIA_CU_SUCCESS) {
        lane->blind_ns = now;
        lane->blind_until = now + GAIA_UNTRIED_NS;
        return;
    }
    marker->host_ns = now;
    marker->after_ns = gaia_prim_now();
    marker->work = work;
    marker->lag_ns = 0;
    marker->exact = work && gaia_lane_pending(lane);
    marker->launches = lane->open_launches;
    marker->charged = lane->open_charged;
    marker->kind = lane->open_launches == 1 ? lane->open_kind : 0;
    marker->graph = lane->open_graph;
    lane->open_launches = lane->open_charged = lane->open_kind = 0;
    if (!gaia_lane_pending(lane))
        lane->moved_ns = now;
    if (!work) /* the stream is idle: it gets there at once */
        lane->at_ns = now;
    lane->next++;
}

void gaia_lane_drop(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                    bool events) {
    struct gaia_meter_card *card = &self->meter.card[lane->card];
    gaia_lane_collect(self, lane, gaia_prim_now());
    uint64_t charged = lane->open_charged;
    for (uint32_t i = lane->first + 1; lane->next != lane->first && i != lane->next; i++)
        charged += AT(lane, i)->charged;
    gaia_card_landed(card, charged);
    for (unsigned i = 0; events && i < GAIA_MARKERS; i++)
        if (lane->marker[i].event) {
            driver->cuEventDestroy_v2(lane->marker[i].event);
            lane->marker[i].event = NULL;
        }
    lane->first = lane->next = 0;
    lane->open_launches = lane->open_charged = lane->open_kind = lane->blind_ns = 0;
}
