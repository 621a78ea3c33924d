/* account.h - the rule that holds a slot to its memory limit, over all its processes.
 *
 * Announce, then check: own `pending` += n; then load the limit and sum everybody's pending, used and
 * context; fits -> the driver may be asked; afterwards used += n and pending -= n, in that order. Two
 * racers may both see each other and back off, but never both pass. The total is derived, never
 * stored: a process killed at any instruction leaves nothing to repair. */
#ifndef GAIA_ACCOUNT_H
#define GAIA_ACCOUNT_H

#include "core/process.h"

#define GAIA_WAIT_NS UINT64_C(1000000000) /* how long announcements of others are waited for */

struct gaia_view {
    uint64_t limit;   /* bytes in force; 0 also when the page is none */
    uint64_t settled; /* used + context or overhead, over all places */
    uint64_t pending; /* announced, over all places */
};

/* What the hooks cannot see of the process at place I. The agent's figure counts once it carries this
 * owner's name; a figure of 0 for a card where the process has a context is no measurement yet (a
 * context always takes something), so the constant stands until there is one. */
static inline uint64_t gaia_unseen(const struct gaia_limits *limits, const struct gaia_usage *usage,
                                   uint64_t i, unsigned card) {
    uint64_t owner = gaia_read(&usage->process[i].owner);
    uint64_t contexts = gaia_read(&usage->process[i].card[card].context);
    if (owner != 0 && gaia_read(&limits->process[i].owner) == owner) {
        uint64_t overhead = gaia_read(&limits->process[i].overhead[card]);
        if (overhead != 0)
            return overhead;
    }
    if (contexts == 0)
        return 0;
    uint64_t bytes = gaia_read(&limits->card[card].context_bytes), all;
    if (__builtin_expect(contexts == 1, 1))
        return bytes;
    return __builtin_mul_overflow(contexts, bytes, &all) ? UINT64_MAX : all;
}

/* Places to look at: at least up to AT_LEAST, our own, whatever somebody wrote into high_water. */
static inline uint64_t gaia_places(const struct gaia_usage *usage, uint64_t at_least) {
    uint64_t end = gaia_read(&usage->high_water);
    if (end < at_least)
        end = at_least;
    return end < GAIA_PROCESSES ? end : GAIA_PROCESSES;
}

static inline void gaia_look(const struct gaia_limits *limits, const struct gaia_usage *usage,
                             uint64_t at_least, unsigned card, struct gaia_view *view) {
    /* The limit is loaded after the announcement (by the caller) and before the sums: an agent that
     * lowers it and then sums up the announcements either sees ours or is seen by us. */
    uint64_t limit = gaia_read(&limits->card[card].memory_limit);
    view->limit = gaia_read(&limits->magic) == GAIA_LIMITS_MAGIC ? limit : 0;
    uint64_t all_pending = 0, all_settled = 0;
    uint64_t end = gaia_places(usage, at_least);
    for (uint64_t i = 0; i < end; i++) {
        const struct gaia_usage_card *words = &usage->process[i].card[card];
        /* pending before used: bytes move from the first to the second, and a reader that took them in
         * the other order could miss bytes on the way (measured: 7 % over the limit). */
        uint64_t pending = gaia_read(&words->pending);
        uint64_t used = gaia_read(&words->used);
        all_pending = gaia_sum(all_pending, pending);
        all_settled = gaia_sum(all_settled, gaia_sum(used, gaia_unseen(limits, usage, i, card)));
    }
    view->pending = all_pending;
    view->settled = all_settled;
}

/* The rest of gaia_claim: others are in the way, or there is no room. BYTES are announced on entry, and
 * on exit only if the answer is true. */
bool gaia_claim_slow(struct gaia_process *self, struct gaia_usage_process *place, unsigned card,
                     uint64_t bytes);

/* Reserve BYTES on CARD for this process. The words to settle with, or NULL: no room within the limit. */
static inline struct gaia_usage_card *gaia_claim(struct gaia_process *self, unsigned card, uint64_t bytes) {
    struct gaia_usage_process *place = gaia_process_place(self);
    if (__builtin_expect(place == NULL, 0))
        return NULL;
    struct gaia_usage_card *words = &place->card[card];
    struct gaia_view view;
    gaia_announce(&words->pending, bytes);
    gaia_look(self->limits, self->usage, (uint64_t)self->index + 1, card, &view);
    if (__builtin_expect(gaia_sum(view.settled, view.pending) <= view.limit, 1))
        return words;
    return gaia_claim_slow(self, place, card, bytes) ? words : NULL;
}

/* The driver gave USED of the ANNOUNCED bytes (0: it refused). */
static inline void gaia_settle(struct gaia_usage_card *words, uint64_t announced, uint64_t used) {
    if (used != 0)
        gaia_charge(&words->used, used);
    gaia_withdraw(&words->pending, announced);
}

/* The driver took BYTES back. Nothing to do without a place: the words are made anew from the table. */
static inline void gaia_uncharge(struct gaia_process *self, unsigned card, uint64_t bytes) {
    struct gaia_usage_process *place = gaia_process_place(self);
    if (__builtin_expect(place == NULL, 0))
        return;
    /* Counted before the bytes go: whoever still reads them, and reads them again after they were
     * given out anew, sees that the count has changed. */
    gaia_charge(&place->card[card].returns, 1);
    gaia_withdraw(&place->card[card].used, bytes);
}

/* What a program is told: total by the card's `report` word, free by the limit, never below 0. */
struct gaia_report_view {
    uint64_t total, free, used;
};
static inline void gaia_report(const struct gaia_limits *limits, const struct gaia_usage *usage,
                               uint64_t at_least, unsigned card, uint64_t real_total, uint64_t real_free,
                               struct gaia_report_view *report) {
    struct gaia_view view;
    gaia_look(limits, usage, at_least, card, &view);
    uint64_t total = view.limit;
    if (view.limit != 0 && gaia_peek(&limits->card[card].memory_report) == GAIA_REPORT_CEILING)
        total = gaia_peek(&limits->card[card].memory_ceiling);
    if (total < view.limit)
        total = view.limit;
    report->used = gaia_sum(view.settled, view.pending);
    report->total = total < real_total ? total : real_total;
    report->free = view.limit > report->used ? view.limit - report->used : 0;
    if (report->free > real_free)
        report->free = real_free;
}

#endif
