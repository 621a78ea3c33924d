#include "core/bucket.h"

#define SILENCE_NS UINT64_C(5000000000)

static bool agent_gone(uint64_t heartbeat, uint64_t now) {
    /* A heartbeat from the future is of another boot, or of another clock: nobody is there either. */
    return heartbeat > now ? heartbeat - now > SILENCE_NS : now - heartbeat > SILENCE_NS;
}

struct gaia_pace gaia_pace_read(const struct gaia_limits *limits, unsigned card, uint64_t now) {
    const struct gaia_limits_card *words = &limits->card[card];
    bool elastic = gaia_peek(&words->compute_mode) == GAIA_COMPUTE_ELASTIC;
    uint64_t rate = gaia_peek(&words->rate_ppm), burst = gaia_peek(&words->burst_ns);
    uint64_t guarantee = gaia_peek(&words->guarantee_ppm);
    struct gaia_pace pace;
    /* A hard slot's rate may have been corrected either way; one without a guarantee has nothing else. */
    if ((elastic || guarantee) && agent_gone(gaia_peek(&limits->heartbeat_ns), now))
        rate = guarantee;
    pace.rate = rate < GAIA_FULL_PPM ? rate : GAIA_FULL_PPM;
    pace.depth = burst && rate ? gaia_bucket_price(burst, pace.rate) : GAIA_DEPTH_NS;
    pace.limited = rate < GAIA_FULL_PPM;
    if (elastic && !pace.limited)
        pace.depth = 0; /* whoever has the whole card saves nothing up for when a neighbour comes back */
    else if (elastic && pace.depth < GAIA_ELASTIC_DEPTH_NS)
        pace.depth = GAIA_ELASTIC_DEPTH_NS;
    /* Whoever is not metered does not look again either, when the agent is gone. */
    pace.metered = pace.limited || elastic || (guarantee && guarantee < GAIA_FULL_PPM);
    return pace;
}

uint64_t gaia_bucket_price(uint64_t gpu_ns, uint64_t rate) {
    uint64_t scaled;
    if (rate == 0)
        return gpu_ns ? GAIA_DEBT_NS : 0;
    if (__builtin_mul_overflow(gpu_ns, GAIA_FULL_PPM, &scaled))
        return GAIA_DEBT_NS;
    uint64_t wall = scaled / rate;
    return wall < GAIA_DEBT_NS ? wall : GAIA_DEBT_NS;
}

uint64_t gaia_bucket_after(uint64_t paid, uint64_t now, const struct gaia_pace *pace, int64_t gpu_ns) {
    uint64_t lowest = now > pace->depth ? now - pace->depth : 0, highest = gaia_sum(now, GAIA_DEBT_NS);
    uint64_t size = gpu_ns < 0 ? 0 - (uint64_t)gpu_ns : (uint64_t)gpu_ns;
    uint64_t price = gaia_bucket_price(size, pace->rate);
    paid = paid < lowest ? lowest : paid > highest ? highest : paid;
    if (gpu_ns < 0)
        paid = paid - lowest > price ? paid - price : lowest;
    else
        paid = gaia_sum(paid, price);
    return paid < highest ? paid : highest;
}

void gaia_bucket_use(gaia_word *paid, uint64_t now, const struct gaia_pace *pace, int64_t gpu_ns) {
    uint64_t before = gaia_peek(paid), after;
    /* Relaxed: nothing else hangs on this word, and every process that adds to it comes through here. */
    do
        after = gaia_bucket_after(before, now, pace, gpu_ns);
    while (!atomic_compare_exchange_weak_explicit(paid, &before, after, memory_order_relaxed,
                                                  memory_order_relaxed));
}
