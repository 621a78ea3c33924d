/* register.h - taking a place in `usage`, and giving the places of the dead back. */
#ifndef GAIA_REGISTER_H
#define GAIA_REGISTER_H

#include "core/owner.h"

#define GAIA_LIBRARY_VERSION (UINT64_C(0) << 32 | UINT64_C(1) << 16 | UINT64_C(0))

/* Take a place for the calling process: a free one, one of a dead process, or the one that a former
 * program of this very pid left behind. Its words are zero afterwards and it lies inside high_water.
 * Fills *identity. False: no place is free, or the process cannot be identified. */
bool gaia_register(struct gaia_usage *usage, struct gaia_identity *identity, uint32_t *index);

/* Zero and free the places of dead processes. Any number of sweepers may run at once, and any of them
 * may be killed at any instruction: the next one does the rest. Returns how many were freed. */
unsigned gaia_sweep(struct gaia_usage *usage, const struct gaia_identity *identity);

#endif
