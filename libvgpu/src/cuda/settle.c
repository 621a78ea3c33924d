/* settle.c - what the markers say: measuring, what launches cost, the bucket. */
#include "cuda/meter.h"

#define AT(lane, i) (&(lane)->marker[(i) % GAIA_MARKERS])
#define LATE_NS UINT64_C(2000000)
#define LEAST_NS UINT64_C(100)
#define NOISE_NS UINT64_C(2000) /* of two clocks */
#define LEAST_PART 64
#define SURPRISE 4                /* times the mean */
#define SURE_NS UINT64_C(1000000) /* what gaia_seen_add says of so long a stretch is taken as it is */
#define BESIDE_NS UINT64_C(32000000)

struct gaia_usage_card *gaia_card_words(struct gaia_process *self, unsigned card) {
    struct gaia_usage_process *place = gaia_process_place(self);
    return place ? &place->card[card] : NULL;
}

void gaia_card_use(struct gaia_process *self, unsigned card, uint64_t now, int64_t gpu_ns) {
    struct gaia_meter_card *c = &self->meter.card[card];
    if (gpu_ns == 0)
        return;
    gaia_bucket_use(gaia_process_place(self) ? &self->usage->bucket[card].paid_until_ns : &c->paid, now,
                    &c->pace, gpu_ns);
}

/* ---- what launches cost ------------------------------------------------------------------------- */

uint64_t gaia_cost(struct gaia_meter *meter, unsigned card, const struct gaia_work *work, bool *known) {
    const struct gaia_meter_kind *kind = gaia_kind_at(meter, work->kind);
    *known = gaia_kind_is(atomic_load_explicit(&kind->word, memory_order_relaxed), work->kind);
    return *known ? kind->cost : work->graph ? 0 : meter->card[card].cost;
}

static uint64_t mean(uint64_t old, uint64_t sample, uint64_t sixteenths) {
    uint64_t most = UINT64_MAX / 16;
    sample = sample < most ? sample : most;
    return sample > old ? old + (sample - old) * sixteenths / 16 : old - (old - sample) * sixteenths / 16;
}

/* One launch of KIND took NS; unless SURE at most that, because its stream was found idle or others' work
 * ran beside it. */
static void learn_kind(struct gaia_meter *meter, struct gaia_meter_card *card, uint64_t kind, uint64_t ns,
                       bool sure) {
    struct gaia_meter_kind *of = gaia_kind_at(meter, kind);
    bool known = gaia_kind_is(atomic_load_explicit(&of->word, memory_order_relaxed), kind), again = false;
    if (!known) /* the first one may be no measure at all: its thread lost its core, or loaded the code */
        of->cost = sure || card->cost == 0 || ns < card->cost ? ns : mean(card->cost, ns, 8);
    else if (sure || ns < of->cost) {
        /* twice in a row much more than the mean: something has changed */
        again = of->surprised && ns / SURPRISE > of->cost;
        of->cost = mean(of->cost, ns, again ? 8 : 1);
    } else
        of->cost += (ns - of->cost < of->cost ? ns - of->cost : of->cost) / 64;
    of->surprised = known && !again && sure && ns / SURPRISE > of->cost;
    uint64_t shown = of->cost < GAIA_KIND_COST ? of->cost : GAIA_KIND_COST;
    atomic_store_explicit(&of->word, (kind & ~GAIA_KIND_COST) | shown, memory_order_relaxed);
    /* No more credits than twice as many as went well: one wrong mean would let seconds of work go. */
    card->trust = of->surprised || again                ? 1
                  : card->trust < GAIA_MOST_CREDITS / 2 ? 2 * card->trust + 1
                                                        : GAIA_MOST_CREDITS;
}

/* The stretch took NS, of which no other stream or process has paid for FRESH. Work that runs beside others'
 * looks cheap, down to nothing, but one that is taken for free would get thousands of credits; hence no
 * less than a part of what it took. */
static void learn(struct gaia_meter *meter, const struct gaia_lane *lane, const struct gaia_marker *marker,
                  uint64_t ns, uint64_t fresh, bool sure) {
    struct gaia_meter_card *card = &meter->card[lane->card];
    uint64_t launches = marker->launches ? marker->launches : 1;
    uint64_t sample = (fresh > ns / LEAST_PART ? fresh : ns / LEAST_PART) / launches;
    sample = sample > LEAST_NS ? sample : LEAST_NS;
    if (marker->kind)
        learn_kind(meter, card, marker->kind, sample, sure);
    if (!marker->graph && (sure || card->cost == 0))
        card->cost = card->cost ? mean(card->cost, sample, launches < 8 ? launches : 8) : sample;
}

/* ---- measuring ---------------------------------------------------------------------------------- */

static uint64_t elapsed(const struct gaia_driver *driver, gaia_cu_object start, gaia_cu_object end) {
    float ms = 0;
    if (driver->cuEventElapsedTime(&ms, start, end) != GAIA_CU_SUCCESS || !(ms >= 0 && ms < 1e9f))
        return UINT64_MAX;
    return (uint64_t)((double)ms * 1e6);
}

/* Of the NS that ended AT, what no other stream or process of the slot has paid for. Asked only where
 * there are others: in another process, or another stream that is or was busy at that time. */
static uint64_t fresh(struct gaia_process *self, const struct gaia_lane *lane, uint64_t at, uint64_t ns,
                      bool *alone) {
    *alone = true;
    if (!gaia_process_place(self))
        return ns;
    uint64_t from = at > ns ? at - ns : 0;
    *alone = gaia_peek(&self->usage->high_water) <= 1;
    for (unsigned i = 0; *alone && i < GAIA_LANES; i++) {
        const struct gaia_lane *other = &self->meter.lane[i];
        *alone =
            other == lane || other->card != lane->card || (gaia_lane_idle(other) && other->at_ns <= from);
    }
    uint64_t new = gaia_seen_add(self->usage->seen[lane->card], from, at);
    if (*alone || ns >= SURE_NS)
        return *alone ? ns : new;
    /* Of short ones a few pay for all. Who has just paid waits, and so would miss the points that are
     * next: each pays at the rate at which the last many did, which is right however they wait. */
    struct gaia_meter_card *card = &self->meter.card[lane->card];
    if (card->beside >= BESIDE_NS) {
        card->beside /= 2;
        card->new /= 2;
    }
    if (card->beside == 0)
        card->beside = card->new = SURE_NS;
    card->beside += ns;
    card->new += new;
    return (uint64_t)((__uint128_t)ns * card->new / card->beside);
}

/* The busy part of a stretch between two markers that are SPAN ns apart on the card's clock, the first
 * reached AT. *sure: that is measured. */
static uint64_t busy_part(const struct gaia_marker *start, const struct gaia_marker *marker, uint64_t at,
                          uint64_t span, bool *sure) {
    /* One launch on an idle stream that was not over when the marker behind it was put there. */
    bool busy = marker->launches == 1 && at + span > marker->after_ns + NOISE_NS;
    *sure = marker->exact || marker->launches == 0 || busy;
    if (*sure || marker->charged == 0)
        return span;
    /* The stream ran dry, for a time that nobody knows. Surely busy is what ran after the last was submitted;
     * else what such launches cost at other times stands in. */
    uint64_t host = marker->host_ns - start->host_ns, least = span > host ? span - host : 0;
    return marker->charged < least ? least : marker->charged < span ? marker->charged : span;
}

static void measured(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                     const struct gaia_marker *marker, uint64_t now) {
    struct gaia_meter *meter = &self->meter;
    const struct gaia_marker *start = AT(lane, lane->first);
    uint64_t span = elapsed(driver, start->event, marker->event), ns = marker->charged;
    if (span != UINT64_MAX) {
        bool sure, alone;
        /* on the host's clock: not before it was recorded or when it was asked for in vain, and by now */
        uint64_t at = gaia_sum(lane->at_ns, span), least = marker->host_ns, most = gaia_prim_now();
        span -= marker->lag_ns < span ? marker->lag_ns : span;
        ns = busy_part(start, marker, at - span, span, &sure);
        least = least > lane->unready_ns ? least : lane->unready_ns;
        /* What is only estimated probably ran as soon as it could. */
        uint64_t ran = lane->at_ns + marker->lag_ns + ns;
        lane->at_ns = at < least ? least : at < most ? at : most;
        uint64_t own = fresh(self, lane, sure || ran > lane->at_ns ? lane->at_ns : ran, ns, &alone);
        /* An estimate is of this work alone; what ran beside it may be why the stream was busy longer. */
        if (!sure && !alone && marker->charged)
            own = marker->charged < ns ? marker->charged : ns;
        if (sure || marker->kind)
            learn(meter, lane, marker, span, sure ? own : (uint64_t)((__uint128_t)span * own / (ns + 1)),
                  sure);
        ns = own;
    } else if (ns == 0) /* no estimate either: since the work before it */
        ns = now > lane->moved_ns ? now - lane->moved_ns : 0;
    gaia_card_landed(&meter->card[lane->card], marker->charged);
    gaia_card_use(self, lane->card, now, (int64_t)ns - (int64_t)marker->charged);
    struct gaia_usage_card *words = gaia_card_words(self, lane->card);
    if (words)
        gaia_charge(&words->busy_ns, ns);
}

/* Without events: the stream has been busy since blind_ns if it still is, and until now if it is not. */
static void settle_blind(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                         uint64_t now) {
    struct gaia_meter_card *card = &self->meter.card[lane->card];
    int error = lane->ptsz ? driver->cuStreamQuery_ptsz(lane->stream) : driver->cuStreamQuery(lane->stream);
    uint64_t since = lane->moved_ns > lane->blind_ns ? lane->moved_ns : lane->blind_ns;
    uint64_t ns = now > since ? now - since : 0;
    gaia_card_use(self, lane->card, now, (int64_t)ns - (int64_t)lane->open_charged);
    gaia_card_landed(card, lane->open_charged);
    struct gaia_usage_card *words = gaia_card_words(self, lane->card);
    if (words) {
        gaia_charge(&words->busy_ns, ns);
        gaia_put(&words->blind_ns, now); /* the agent tells why the share is smaller than it might be */
    }
    lane->open_charged = 0;
    lane->blind_ns = now;
    if (error == GAIA_CU_NOT_READY)
        return;
    lane->open_launches = lane->open_kind = lane->blind_ns = 0;
    lane->first = lane->next = 0;
}

/* The events of this stream cannot be asked any more: what they were to measure is watched instead. */
static void go_blind(struct gaia_lane *lane, uint64_t now) {
    for (uint32_t i = lane->first + 1; i != lane->next; i++)
        lane->open_charged += AT(lane, i)->charged;
    lane->blind_ns = lane->moved_ns;
    lane->blind_until = now + GAIA_UNTRIED_NS;
    lane->first = lane->next = 0;
}

void gaia_lane_settle(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                      bool here, uint64_t now) {
    uint32_t i = lane->first + 1;
    for (; lane->next != lane->first && i != lane->next; i++) {
        struct gaia_marker *marker = AT(lane, i);
        int error = driver->cuEventQuery(marker->event);
        if (error == GAIA_CU_NOT_READY) {
            lane->unready_ns = now;
            return;
        }
        if (error != GAIA_CU_SUCCESS) {
            go_blind(lane, now);
            break;
        }
        if (marker->work)
            measured(self, driver, lane, marker, now);
        lane->first = i;
        lane->moved_ns = now;
    }
    if (lane->blind_ns && lane->submitting == 0 && here)
        settle_blind(self, driver, lane, now);
}

bool gaia_card_late(const struct gaia_meter *meter, unsigned card, uint64_t now) {
    for (unsigned i = 0; i < GAIA_LANES; i++) {
        const struct gaia_lane *lane = &meter->lane[i];
        if (lane->card != card || !gaia_lane_pending(lane))
            continue;
        if (lane->blind_ns)
            return true;
        uint64_t charged = AT(lane, lane->first + 1)->charged;
        if (now > lane->moved_ns && now - lane->moved_ns > 2 * charged + LATE_NS)
            return true;
    }
    return false;
}
