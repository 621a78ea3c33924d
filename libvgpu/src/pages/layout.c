/* The numbers of gaia_pages.h by name, so that Python repeats none of them. */
#include "gaia_pages.h"
#include "pages.h"

#define LIMITS_HEAD(word)                                                                                    \
    { "limits." #word, offsetof(struct gaia_limits, word) }
#define LIMITS_CARD(word)                                                                                    \
    { "limits.card." #word, offsetof(struct gaia_limits_card, word) }
#define LIMITS_PROCESS(word)                                                                                 \
    { "limits.process." #word, offsetof(struct gaia_limits_process, word) }
#define USAGE_HEAD(word)                                                                                     \
    { "usage." #word, offsetof(struct gaia_usage, word) }
#define USAGE_BUCKET(word)                                                                                   \
    { "usage.bucket." #word, offsetof(struct gaia_usage_bucket, word) }
#define USAGE_PROCESS(word)                                                                                  \
    { "usage.process." #word, offsetof(struct gaia_usage_process, word) }
#define USAGE_CARD(word)                                                                                     \
    { "usage.process.card." #word, offsetof(struct gaia_usage_card, word) }

static const struct gaia_number numbers[] = {
    {"cards", GAIA_CARDS},
    {"processes", GAIA_PROCESSES},
    {"layout_version", GAIA_LAYOUT_VERSION},
    {"limits_magic", GAIA_LIMITS_MAGIC},
    {"usage_magic", GAIA_USAGE_MAGIC},
    {"owner_of_pid", GAIA_OWNER(1, 0)}, /* an owner word is pid times this, plus the start time */
    {"compute.hard", GAIA_COMPUTE_HARD},
    {"compute.elastic", GAIA_COMPUTE_ELASTIC},
    {"report.limit", GAIA_REPORT_LIMIT},
    {"report.ceiling", GAIA_REPORT_CEILING},
    {"state.applied", GAIA_SLOT_APPLIED},
    {"state.draining", GAIA_SLOT_DRAINING},
    {"state.releasing", GAIA_SLOT_RELEASING},
    {"limits.bytes", sizeof(struct gaia_limits)},
    LIMITS_HEAD(magic),
    LIMITS_HEAD(layout_version),
    LIMITS_HEAD(size),
    LIMITS_HEAD(sequence),
    LIMITS_HEAD(generation),
    LIMITS_HEAD(state),
    LIMITS_HEAD(boot_id),
    LIMITS_HEAD(heartbeat_ns),
    LIMITS_HEAD(card_count),
    LIMITS_HEAD(card),
    {"limits.card.bytes", sizeof(struct gaia_limits_card)},
    LIMITS_CARD(uuid),
    LIMITS_CARD(memory_limit),
    LIMITS_CARD(memory_ceiling),
    LIMITS_CARD(memory_report),
    LIMITS_CARD(context_bytes),
    LIMITS_CARD(rate_ppm),
    LIMITS_CARD(guarantee_ppm),
    LIMITS_CARD(ceiling_ppm),
    LIMITS_CARD(compute_mode),
    LIMITS_CARD(burst_ns),
    LIMITS_CARD(futex),
    LIMITS_HEAD(process),
    {"limits.process.bytes", sizeof(struct gaia_limits_process)},
    LIMITS_PROCESS(owner),
    LIMITS_PROCESS(overhead),
    {"usage.bytes", sizeof(struct gaia_usage)},
    USAGE_HEAD(magic),
    USAGE_HEAD(layout_version),
    USAGE_HEAD(size),
    USAGE_HEAD(high_water),
    USAGE_HEAD(bucket),
    {"usage.bucket.bytes", sizeof(struct gaia_usage_bucket)},
    USAGE_BUCKET(paid_until_ns),
    USAGE_HEAD(seen),
    USAGE_HEAD(process),
    {"usage.process.bytes", sizeof(struct gaia_usage_process)},
    USAGE_PROCESS(owner),
    USAGE_PROCESS(registered_ns),
    USAGE_PROCESS(library),
    USAGE_PROCESS(card),
    {"usage.process.card.bytes", sizeof(struct gaia_usage_card)},
    USAGE_CARD(used),
    USAGE_CARD(pending),
    USAGE_CARD(context),
    USAGE_CARD(busy_ns),
    USAGE_CARD(throttled_ns),
    USAGE_CARD(launches),
    USAGE_CARD(returns),
    USAGE_CARD(blind_ns),
};

GAIA_PAGES_API const struct gaia_number *gaia_page_layout(size_t *count) {
    *count = sizeof numbers / sizeof *numbers;
    return numbers;
}
