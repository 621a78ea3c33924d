/* bucket.h - the bucket of GPU time that all processes of a slot share, as one word per card.
 *
 * The word says until which instant the GPU time used so far is paid for at the rate in force (the
 * "theoretical arrival time" of the generic cell rate algorithm). Using t ns at rate r moves it on by
 * t / r; a launch may go when it has passed. It never lies further back than the bucket is deep, which
 * is what an idle slot may use at once, and never further ahead than GAIA_DEBT_NS, which bounds every
 * wait: also after nonsense in the word, or a clock that jumped. */
#ifndef GAIA_BUCKET_H
#define GAIA_BUCKET_H

#include "core/atomic.h"

#define GAIA_FULL_PPM UINT64_C(1000000)
#define GAIA_DEBT_NS UINT64_C(1000000000)
#define GAIA_DEPTH_NS UINT64_C(50000000) /* of wall time, when the page names no depth */
/* At least this deep is an elastic slot's: when it comes back from idleness to a card that a neighbour has
 * filled, what it measures is mostly waiting, and it must not be in debt for that when the agent has made
 * room for it. */
#define GAIA_ELASTIC_DEPTH_NS UINT64_C(200000000)

/* What a card's words of the limits page mean at this moment. */
struct gaia_pace {
    uint64_t rate;  /* millionths of the card's time; 0 = one launch per GAIA_DEBT_NS */
    uint64_t depth; /* of the bucket, ns of wall time */
    bool metered;   /* GPU time is measured */
    bool limited;   /* and launches wait for it */
};

/* A slot whose agent has not been heard of for 5 s has nobody who shares out idle time or corrects rates:
 * it falls back to its guarantee. An unknown mode is hard. */
struct gaia_pace gaia_pace_read(const struct gaia_limits *limits, unsigned card, uint64_t now);

/* Wall time that pays for GPU_NS; at most GAIA_DEBT_NS. */
uint64_t gaia_bucket_price(uint64_t gpu_ns, uint64_t rate);

/* The word after GPU_NS were used (given back when negative) at NOW. */
uint64_t gaia_bucket_after(uint64_t paid, uint64_t now, const struct gaia_pace *pace, int64_t gpu_ns);

/* How long a launch has to wait; 0 = it may go. */
static inline uint64_t gaia_bucket_wait(uint64_t paid, uint64_t now) {
    if (paid <= now)
        return 0;
    return paid - now < GAIA_DEBT_NS ? paid - now : GAIA_DEBT_NS;
}

void gaia_bucket_use(gaia_word *paid, uint64_t now, const struct gaia_pace *pace, int64_t gpu_ns);

#endif
