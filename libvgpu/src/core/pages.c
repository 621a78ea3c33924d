#include "core/pages.h"
#include "core/place.h"
#include <string.h>

bool gaia_limits_valid(const struct gaia_limits *limits) {
    return gaia_read(&limits->magic) == GAIA_LIMITS_MAGIC &&
           gaia_read(&limits->layout_version) == GAIA_LAYOUT_VERSION &&
           gaia_read(&limits->size) >= sizeof(struct gaia_limits);
}

bool gaia_usage_valid(const struct gaia_usage *usage) {
    return gaia_read(&usage->magic) == GAIA_USAGE_MAGIC &&
           gaia_read(&usage->layout_version) == GAIA_LAYOUT_VERSION &&
           gaia_read(&usage->size) >= sizeof(struct gaia_usage);
}

static bool page_path(char *path, size_t size, const char *name) {
    char slot[GAIA_PATH];
    return gaia_place_slot(slot, sizeof slot) == 0 && gaia_place_join(path, size, slot, name) == 0;
}

bool gaia_pages_open(struct gaia_pages *pages, bool writable) {
    char path[GAIA_PATH];
    if (!page_path(path, sizeof path, "/limits"))
        return false;
    pages->limits = gaia_prim_map(path, sizeof(struct gaia_limits), false, &pages->limits_file);
    if (!pages->limits)
        return false;
    if (page_path(path, sizeof path, "/usage"))
        pages->usage = gaia_prim_map(path, sizeof(struct gaia_usage), writable, &pages->usage_file);
    if (pages->usage && gaia_limits_valid(pages->limits) && gaia_usage_valid(pages->usage))
        return true;
    if (pages->usage)
        gaia_prim_unmap(pages->usage, sizeof(struct gaia_usage));
    gaia_prim_unmap((void *)pages->limits, sizeof(struct gaia_limits));
    pages->limits = NULL;
    pages->usage = NULL;
    return false;
}

/* A name that is gone says nothing about the file we mapped: the agent removes names, never contents,
 * and a process that changed its root directory sees no name at all. The last limits stay in force. */
static bool file_same(const char *name, const struct gaia_file *mapped, uint64_t size) {
    char path[GAIA_PATH];
    struct gaia_file now;
    if (!page_path(path, sizeof path, name) || !gaia_prim_stat(path, &now))
        return true;
    return now.device == mapped->device && now.inode == mapped->inode && now.size >= size;
}

enum gaia_freshness gaia_pages_ask(const struct gaia_pages *pages) {
    if (!file_same("/limits", &pages->limits_file, sizeof(struct gaia_limits)) ||
        !file_same("/usage", &pages->usage_file, sizeof(struct gaia_usage)))
        return GAIA_PAGES_CHANGED;
    return gaia_limits_valid(pages->limits) && gaia_usage_valid(pages->usage) ? GAIA_PAGES_SAME
                                                                              : GAIA_PAGES_CHANGED;
}

int gaia_pages_card(const struct gaia_limits *limits, const unsigned char uuid[16]) {
    uint64_t wanted[2];
    memcpy(wanted, uuid, sizeof wanted);
    if ((wanted[0] | wanted[1]) == 0) /* that is "no card here", not a card */
        return -1;
    for (int tries = 0; tries < GAIA_SEQUENCE_TRIES; tries++) {
        uint64_t before = gaia_read(&limits->sequence);
        int found = -1;
        for (int i = 0; i < GAIA_CARDS && found < 0; i++)
            if (gaia_read(&limits->card[i].uuid[0]) == wanted[0] &&
                gaia_read(&limits->card[i].uuid[1]) == wanted[1])
                found = i;
        /* An answer that stood while the agent wrote a group may mix two cards' halves: look again. A
         * killed agent leaves the number odd for ever, hence only so many times. */
        if (found >= 0 || (before % 2 == 0 && gaia_read(&limits->sequence) == before))
            return found;
    }
    return -1;
}
