/* lock.h - a byte that threads of one process spin on. Never in shared memory: a killed holder would
 * block the others. All locks lie in the page that a forked child sees zeroed, so a lock that another
 * thread held at the moment of the fork is free again in the child. */
#ifndef GAIA_LOCK_H
#define GAIA_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    _Atomic unsigned char held;
} gaia_lock;

static inline void gaia_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Acquire: nothing of the critical section may move before the lock is ours. */
static inline bool gaia_lock_try(gaia_lock *lock) {
    return !atomic_exchange_explicit(&lock->held, 1, memory_order_acquire);
}

static inline void gaia_lock_take(gaia_lock *lock) {
    for (unsigned spins = 0; !gaia_lock_try(lock); spins++) {
        /* Relaxed: only a hint when to try again. After a while the holder has probably lost its core. */
        while (atomic_load_explicit(&lock->held, memory_order_relaxed))
            if (++spins % 128 == 0)
                sched_yield();
            else
                gaia_pause();
    }
}

/* Release: the next holder sees everything written under the lock. */
static inline void gaia_lock_drop(gaia_lock *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

#endif
