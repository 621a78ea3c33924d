/* bucket_test.c - the arithmetic of the compute limit by itself: rates, nonsense, clocks, many writers. */
#include "check.h"
#include "core/bucket.h"
#include "core/seen.h"
#include <pthread.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

static struct gaia_pace at(uint64_t rate) {
    return (struct gaia_pace){.rate = rate, .depth = 50 * MS, .metered = true, .limited = rate < 1000000};
}

static void time_is_paid_at_the_rate(void) {
    struct gaia_pace quarter = at(250000);
    uint64_t now = 100 * S, paid = now;
    paid = gaia_bucket_after(paid, now, &quarter, (int64_t)(10 * MS));
    CHECK(paid == now + 40 * MS);
    CHECK(gaia_bucket_wait(paid, now) == 40 * MS);
    CHECK(gaia_bucket_wait(paid, now + 40 * MS) == 0);
    CHECK(gaia_bucket_after(paid, now, &quarter, -(int64_t)(10 * MS)) == now);
    CHECK(gaia_bucket_after(paid, now, &quarter, 0) == paid);
}

static void an_idle_slot_saves_up_no_more_than_the_depth(void) {
    struct gaia_pace half = at(500000);
    uint64_t now = 100 * S;
    CHECK(gaia_bucket_after(0, now, &half, (int64_t)MS) == now - 48 * MS);
    CHECK(gaia_bucket_after(now, now, &half, -(int64_t)S) == now - 50 * MS);
    CHECK(gaia_bucket_after(0, MS, &half, 0) == 0); /* a machine that has just started */
}

static void debt_is_bounded(void) {
    struct gaia_pace tenth = at(100000), none = at(0);
    uint64_t now = 100 * S;
    CHECK(gaia_bucket_after(now, now, &tenth, (int64_t)(50 * S)) == now + S);
    CHECK(gaia_bucket_after(now, now, &tenth, INT64_MAX) == now + S);
    CHECK(gaia_bucket_after(now, now, &tenth, INT64_MIN) == now - 50 * MS);
    CHECK(gaia_bucket_after(now, now, &none, 1) == now + S); /* no rate: one launch per second */
    CHECK(gaia_bucket_price(UINT64_MAX, 1) == S);
    CHECK(gaia_bucket_price(UINT64_MAX, UINT64_MAX) == S);
    CHECK(gaia_bucket_price(0, 0) == 0);
}

static void nonsense_and_jumping_clocks_last_a_second(void) {
    struct gaia_pace half = at(500000);
    uint64_t now = 100 * S;
    CHECK(gaia_bucket_wait(UINT64_MAX, now) == S);
    CHECK(gaia_bucket_after(UINT64_MAX, now, &half, 0) == now + S);
    CHECK(gaia_bucket_wait(now, 1 * S) == S);                     /* the clock went back by 99 s */
    CHECK(gaia_bucket_after(now, 1 * S, &half, 0) == 2 * S);      /* and the word follows */
    CHECK(gaia_bucket_after(now, 9000 * S, &half, 0) > 8999 * S); /* it jumped ahead: no hours saved up */
    CHECK(gaia_bucket_after(UINT64_MAX, UINT64_MAX - 1, &half, (int64_t)S) == UINT64_MAX);
}

static void a_change_of_rate_keeps_the_debt(void) {
    struct gaia_pace tenth = at(100000), full = at(900000);
    uint64_t now = 100 * S, paid = gaia_bucket_after(now, now, &tenth, (int64_t)(20 * MS));
    CHECK(paid == now + 200 * MS);
    CHECK(gaia_bucket_after(paid, now, &full, (int64_t)(9 * MS)) == now + 210 * MS);
}

static struct gaia_limits page;
static struct gaia_pace read_pace(uint64_t mode, uint64_t rate, uint64_t guarantee, uint64_t heartbeat) {
    page.card[3].compute_mode = mode;
    page.card[3].rate_ppm = rate;
    page.card[3].guarantee_ppm = guarantee;
    page.heartbeat_ns = heartbeat;
    return gaia_pace_read(&page, 3, 1000 * S);
}

static void the_page_says_the_pace(void) {
    struct gaia_pace pace = read_pace(GAIA_COMPUTE_HARD, 250000, 270000, 999 * S);
    CHECK(pace.rate == 250000 && pace.limited && pace.metered && pace.depth == 50 * MS);
    pace = read_pace(GAIA_COMPUTE_HARD, 250000, 270000, 994 * S); /* nobody corrects the rate */
    CHECK(pace.rate == 270000 && pace.limited && pace.metered && pace.depth == 50 * MS);
    pace = read_pace(GAIA_COMPUTE_HARD, 250000, 0, 0);
    CHECK(pace.rate == 250000 && pace.limited);
    pace = read_pace(GAIA_COMPUTE_HARD, 1000000, 270000, 999 * S); /* must look again */
    CHECK(!pace.limited && pace.metered);
    pace = read_pace(GAIA_COMPUTE_HARD, 1000000, 1000000, 0);
    CHECK(!pace.limited && !pace.metered);
    pace = read_pace(GAIA_COMPUTE_ELASTIC, 1000000, 300000, 999 * S);
    CHECK(!pace.limited && pace.metered && pace.rate == 1000000 && pace.depth == 0);
    pace = read_pace(GAIA_COMPUTE_ELASTIC, 1000000, 300000, 994 * S); /* nobody shares idle time out */
    CHECK(pace.limited && pace.rate == 300000 && pace.depth == 200 * MS);
    pace = read_pace(GAIA_COMPUTE_ELASTIC, 700000, 300000, 2000 * S); /* a heartbeat of another clock */
    CHECK(pace.rate == 300000);
    pace = read_pace(77, 250000, 100000, 999 * S); /* an unknown mode is hard */
    CHECK(pace.rate == 250000 && pace.limited);
    pace = read_pace(77, UINT64_MAX, 0, 0);
    CHECK(pace.rate == 1000000 && !pace.metered);
    pace = read_pace(0, 0, 0, 0); /* a page of zeros grants hardly anything */
    CHECK(pace.rate == 0 && pace.limited && pace.depth == 50 * MS);
    page.card[3].burst_ns = 5 * MS; /* GPU time */
    CHECK(read_pace(GAIA_COMPUTE_HARD, 100000, 0, 0).depth == 50 * MS);
    page.card[3].burst_ns = UINT64_MAX;
    CHECK(read_pace(GAIA_COMPUTE_HARD, 100000, 0, 0).depth == S);
    page.card[3].burst_ns = 0;
}

static gaia_word shared;
static void *user(void *argument) {
    struct gaia_pace half = at(500000);
    for (int i = 0; i < 10000; i++)
        gaia_bucket_use(&shared, 100 * S, &half, i % 2 ? 3000 : -1000);
    return NULL;
}

static void many_users_lose_nothing(void) {
    pthread_t thread[4];
    shared = 100 * S;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, user, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK(shared == 100 * S + 4 * 5000 * 2 * (3000 - 1000));
}

static void what_runs_together_is_paid_once(uint64_t now) {
    gaia_word seen[GAIA_SEEN] = {0};
    uint64_t unit = UINT64_C(1) << 17;
    now = now / unit / 48 * 48 * unit;
    CHECK(gaia_seen_add(seen, now, now + 10 * unit - 5) == 10 * unit - 5);
    CHECK(gaia_seen_add(seen, now, now + 10 * unit) == 0);
    CHECK(gaia_seen_add(seen, now + 5 * unit, now + 15 * unit) == 5 * unit);
    uint64_t paid = 0; /* the one point of these 131 us is in one of the halves */
    for (uint64_t half = 40; half < 42; half++)
        paid += gaia_seen_add(seen, now + half * unit / 2, now + (half + 1) * unit / 2);
    CHECK(paid == unit);
    CHECK(gaia_seen_add(seen, now + 20 * unit, now + 21 * unit) == 0);
    CHECK(gaia_seen_add(seen, now, now + 100 * unit) == 84 * unit); /* over the ends of words */
    CHECK(gaia_seen_add(seen, now, now) == 0);
    CHECK(gaia_seen_add(seen, now + 9, now) == 0);
    /* longer than the words reach: what lies further back is taken for not yet paid */
    CHECK(gaia_seen_add(seen, now, now + 1000 * unit) == 1000 * unit);
    CHECK(gaia_seen_add(seen, now, now + 1000 * unit) == 280 * unit);
    CHECK(gaia_seen_add(seen, now, now + 10 * unit) == 10 * unit); /* too long ago to be told */
    CHECK(gaia_seen_add(seen, 0, UINT64_MAX) > 0);
    for (int i = 0; i < GAIA_SEEN; i++)
        seen[i] = UINT64_MAX; /* nonsense of a program of the slot */
    CHECK(gaia_seen_add(seen, now, now + 10 * unit) <= 10 * unit);
}

/* A kernel of 20 us, then a wait that is a multiple of the points' distance: none may slip through. */
static void short_ones_are_paid_in_the_mean(void) {
    for (uint64_t apart = 1; apart < 9; apart++) {
        gaia_word seen[GAIA_SEEN] = {0};
        uint64_t paid = 0, at = 100 * S;
        for (int i = 0; i < 4000; i++, at += apart << 17)
            paid += gaia_seen_add(seen, at, at + 20000);
        CHECK(paid > 4000 * 20000 / 100 * 85 && paid < 4000 * 20000 / 100 * 115);
    }
}

static gaia_word shared_seen[GAIA_SEEN];
static _Atomic uint64_t marked;
static void *marker(void *argument) {
    for (uint64_t i = 0; i < 1000; i++) /* all mark the same 53 ms */
        marked += gaia_seen_add(shared_seen, 100 * S + i * 50000, 100 * S + i * 50000 + 3 * MS);
    return NULL;
}

static void many_markers_pay_once(void) {
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, marker, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    CHECK(marked > 52 * MS && marked < 54 * MS);
}

int main(void) {
    time_is_paid_at_the_rate();
    an_idle_slot_saves_up_no_more_than_the_depth();
    debt_is_bounded();
    nonsense_and_jumping_clocks_last_a_second();
    a_change_of_rate_keeps_the_debt();
    the_page_says_the_pace();
    many_users_lose_nothing();
    for (uint64_t now = 100 * S; now < 100000 * S; now = now * 5 / 4) /* whatever the turn's 16 bits say */
        what_runs_together_is_paid_once(now);
    short_ones_are_paid_in_the_mean();
    many_markers_pay_once();
    return 0;
}
