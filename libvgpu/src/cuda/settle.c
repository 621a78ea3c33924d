/* settle.c - what the markers say: measuring, the moving mean, the bucket. */
#include "cuda/meter.h"

#define AT(lane, i) (&(lane)->marker[(i) % GAIA_MARKERS])
#define LATE_NS UINT64_C(2000000)
#define SHORT_NS                                                                                             \
    UINT64_C(50000) /* host time between two markers that says little about the pause before work */
#define LEAST_NS UINT64_C(100)
#define LEAST_PART 8
#define LONG_NS UINT64_C(500000) /* the watcher does not miss such a kernel */
#define LEFT_NS UINT64_C(100000)

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

/* ---- the mean cost of a launch ------------------------------------------------------------------ */

static struct gaia_meter_exec *exec_of(const struct gaia_meter *meter, uint64_t exec) {
    return (struct gaia_meter_exec *)&meter->exec[(exec >> 4 ^ exec >> 12) % GAIA_EXECS];
}

uint64_t gaia_cost(const struct gaia_meter *meter, unsigned card, uint64_t exec) {
    if (exec == 0)
        return meter->card[card].cost;
    const struct gaia_meter_exec *known = exec_of(meter, exec);
    return known->exec == exec ? known->cost : 0;
}

static uint64_t mean(uint64_t old, uint64_t sample, uint64_t launches, bool *surprised) {
    if (sample < LEAST_NS)
        sample = LEAST_NS;
    /* Twice in a row much more than the mean: other work has begun. Once: a rare long kernel among short
     * ones, which is measured where it runs; the mean is for the short ones. */
    bool before = *surprised;
    *surprised = sample / 4 > old;
    if (*surprised && before)
        return old / 2 + sample / 2;
    if (*surprised && sample > LONG_NS && old < LONG_NS / 2)
        sample = LONG_NS;
    uint64_t weight = launches < 8 ? launches : 8;
    return sample > old ? old + (sample - old) * weight / 16 : old - (old - sample) * weight / 16;
}

/* NS is what the stretch took, FRESH the part of it that no other stream or process has paid for. Work that
 * runs beside others' looks cheap, down to nothing, but one that is taken for free would get thousands of
 * credits; hence no less than a part of what it took, and no more credits than twice as many as went well. */
static void learn(struct gaia_meter *meter, unsigned card, const struct gaia_marker *marker, uint64_t ns,
                  uint64_t fresh) {
    struct gaia_meter_card *c = &meter->card[card];
    uint64_t launches = marker->launches ? marker->launches : 1;
    uint64_t sample = (fresh > ns / LEAST_PART ? fresh : ns / LEAST_PART) / launches;
    if (marker->exec) {
        struct gaia_meter_exec *known = exec_of(meter, marker->exec);
        bool surprised = true;
        known->cost =
            known->exec == marker->exec ? mean(known->cost, sample, launches, &surprised) : ns / launches;
        known->exec = marker->exec;
        return;
    }
    if (c->cost == 0)
        c->cost = ns / launches > LEAST_NS ? ns / launches : LEAST_NS;
    else
        c->cost = mean(c->cost, sample, launches, &c->surprised);
    c->trust = c->surprised ? 1 : c->trust < GAIA_MOST_CREDITS / 2 ? 2 * c->trust + 1 : GAIA_MOST_CREDITS;
}

/* ---- measuring ---------------------------------------------------------------------------------- */

static uint64_t elapsed(const struct gaia_driver *driver, gaia_cu_object start, gaia_cu_object end) {
    float ms = 0;
    if (driver->cuEventElapsedTime(&ms, start, end) != GAIA_CU_SUCCESS || !(ms >= 0 && ms < 1e9f))
        return UINT64_MAX;
    return (uint64_t)((double)ms * 1e6);
}

/* Of the NS that ended AT, what no other stream or process of the slot has paid for. Asked only where
 * there are others. */
static uint64_t fresh(struct gaia_process *self, const struct gaia_lane *lane, uint64_t at, uint64_t ns) {
    if (!gaia_process_place(self))
        return ns;
    bool alone = gaia_peek(&self->usage->high_water) <= 1;
    for (unsigned i = 0; alone && i < GAIA_LANES; i++)
        alone = &self->meter.lane[i] == lane || self->meter.lane[i].card != lane->card ||
                gaia_lane_idle(&self->meter.lane[i]);
    uint64_t new = gaia_seen_add(self->usage->seen[lane->card], at > ns ? at - ns : 0, at);
    return alone ? ns : new;
}

/* The busy part of a stretch between two markers that are SPAN ns apart on the card's clock. */
static uint64_t busy_part(const struct gaia_marker *marker, uint64_t span, uint64_t host, uint64_t guess) {
    if (marker->exact || (host < SHORT_NS && marker->launches == 1) || marker->launches == 0)
        return span;
    /* The stream may have run dry in between. Surely busy is what ran after the last was submitted. Of the
     * rest nobody knows: when the watcher came by and found a long kernel running, it probably ran before
     * too; else the mean cost stands in. */
    uint64_t least = span > host ? span - host : 0;
    if (guess == 0 || (marker->glance == GAIA_GLANCE_BUSY && least > LEFT_NS))
        return span;
    return guess < least ? least : guess < span ? guess : span;
}

static void measured(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_lane *lane,
                     const struct gaia_marker *marker, uint64_t now) {
    struct gaia_meter *meter = &self->meter;
    const struct gaia_marker *start = AT(lane, lane->first);
    uint64_t span = elapsed(driver, start->event, marker->event), host = marker->host_ns - start->host_ns;
    uint64_t guess = gaia_cost(meter, lane->card, marker->exec) * marker->launches, ns = guess;
    if (span != UINT64_MAX) {
        span -= marker->lag_ns < span ? marker->lag_ns : span;
        ns = busy_part(marker, span, host, guess);
        /* on the host's clock: not before it was recorded, and by now */
        uint64_t at = gaia_sum(lane->at_ns, span + marker->lag_ns);
        lane->at_ns = at < marker->host_ns ? marker->host_ns : at < now ? at : now;
        bool whole = ns == span && marker->glance == GAIA_GLANCE_NONE;
        uint64_t own = fresh(self, lane, lane->at_ns, ns);
        if (whole)
            learn(meter, lane->card, marker, ns, own);
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
    if (words)
        gaia_charge(&words->busy_ns, ns);
    lane->open_charged = 0;
    lane->blind_ns = now;
    if (error == GAIA_CU_NOT_READY)
        return;
    lane->open_launches = lane->open_exec = lane->blind_ns = 0;
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
        if (error == GAIA_CU_NOT_READY)
            return;
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
