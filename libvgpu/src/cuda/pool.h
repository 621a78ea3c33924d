/* pool.h - stream-ordered memory is charged by what its pool reserves on the card, not by the pointers
 * handed out: a pool keeps freed memory until a synchronisation, or for ever. */
#ifndef GAIA_POOL_H
#define GAIA_POOL_H

#include "cuda/hook.h"

bool gaia_pools_give_back_slow(struct gaia_process *self, const struct gaia_driver *driver, unsigned card);
void gaia_pools_refresh_slow(struct gaia_process *self, const struct gaia_driver *driver, unsigned card);

/* cuMemFree of what is no plain pointer: of a pool, or unknown. The driver's answer. SELF may be NULL. */
int gaia_pool_free(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_ptr pointer);

static inline bool gaia_pools_any(struct gaia_process *self) {
    return atomic_load_explicit(&self->pools, memory_order_relaxed) != 0;
}

/* Trim this process's pools on CARD; true when they gave anything back. */
static inline bool gaia_pools_give_back(struct gaia_process *self, const struct gaia_driver *driver,
                                        unsigned card) {
    return gaia_pools_any(self) && gaia_pools_give_back_slow(self, driver, card);
}

/* Follow pools that shrank at a synchronisation. */
static inline void gaia_pools_refresh(struct gaia_process *self, const struct gaia_driver *driver,
                                      unsigned card) {
    if (__builtin_expect(gaia_pools_any(self), 0))
        gaia_pools_refresh_slow(self, driver, card);
}

/* While self->pooling is held nothing may map pages anew (that sums the pools up under the same lock):
 * hence gaia_uncharge there, never gaia_give_back, and gaia_claim, never gaia_claim_hard. */

/* With self->pooling held: the pool's entry, made if need be. NULL when there is no room for one more. */
struct gaia_pool *gaia_pool_find(struct gaia_process *self, uint64_t handle);
struct gaia_pool *gaia_pool_add(struct gaia_process *self, uint64_t handle, unsigned card, bool counted);

/* With self->pooling held: set the charge to what the driver reserves now. */
void gaia_pool_follow(struct gaia_process *self, const struct gaia_driver *driver, struct gaia_pool *pool);

#endif
