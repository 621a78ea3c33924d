/* owner.h - who a process is, and whether it is still there. */
#ifndef GAIA_OWNER_H
#define GAIA_OWNER_H

#include "core/atomic.h"

/* Words of gaia_usage_process.reserved that this library gives a meaning. */
enum {
    GAIA_RESERVED_IMAGE = 0,     /* gaia_prim_image of the owner: tells two programs of one pid apart */
    GAIA_RESERVED_NAMESPACE = 1, /* pid namespace of the owner: its pid means nothing elsewhere */
};

struct gaia_identity {
    uint64_t owner;      /* GAIA_OWNER; 0 when /proc cannot be read */
    uint64_t image;      /* never 0 */
    uint64_t name_space; /* never 0 */
};

void gaia_identity_read(struct gaia_identity *self);

/* True only when OWNER is known to be dead: no such pid, another start time, or a zombie whose last
 * thread has ended (its device memory is back by then). "Cannot tell" is alive. */
bool gaia_owner_dead(uint64_t owner);

/* Start time and state out of the text of /proc/PID/stat. False when it is not such a text. */
bool gaia_stat_parse(const char *text, uint64_t *start, char *state, uint64_t *threads);

#endif
