/* pages.h - finding, checking and mapping the two pages of the slot (layout: gaia_pages.h).
 * A page that is missing, too short or of another kind is no page: the caller then grants nothing. */
#ifndef GAIA_PAGES_MAP_H
#define GAIA_PAGES_MAP_H

#include "core/atomic.h"
#include "core/prim.h"
#include <stdbool.h>

struct gaia_pages {
    const struct gaia_limits *limits;
    struct gaia_usage *usage;
    struct gaia_file limits_file, usage_file; /* which files the maps belong to */
};

enum gaia_freshness {
    GAIA_PAGES_SAME,    /* still the files we mapped, and long enough (or not to be asked any more) */
    GAIA_PAGES_CHANGED, /* truncated, replaced, or overwritten with something that is no page */
};

/* Map both pages. WRITABLE: `usage` too, as a process that allocates needs it. False: nothing mapped. */
bool gaia_pages_open(struct gaia_pages *pages, bool writable);

/* Whether the maps may still be touched. Costs two system calls. Between this answer and the next touch
 * somebody may still truncate a file; no library without a signal handler can close that gap. */
enum gaia_freshness gaia_pages_ask(const struct gaia_pages *pages);

/* The two tests of a page's first words, on memory that is known to be long enough. */
bool gaia_limits_valid(const struct gaia_limits *limits);
bool gaia_usage_valid(const struct gaia_usage *usage);

/* Index of the card with these 16 bytes of UUID, or -1. */
int gaia_pages_card(const struct gaia_limits *limits, const unsigned char uuid[16]);

#endif
