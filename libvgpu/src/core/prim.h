/* prim.h - the operating system: the only part that makes system calls. No function here changes the
 * process (signals, umask, limits), prints, or keeps a descriptor open. */
#ifndef GAIA_PRIM_H
#define GAIA_PRIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct gaia_file {
    uint64_t device, inode, size;
};

/* Which file PATH names now. False when there is none, or it cannot be asked. */
bool gaia_prim_stat(const char *path, struct gaia_file *file);

/* Map the first SIZE bytes of the regular file PATH, shared and not inherited by forked children.
 * NULL when there is no such file, it is shorter than SIZE, or it may not be opened that way. */
void *gaia_prim_map(const char *path, size_t size, bool writable, struct gaia_file *file);
void gaia_prim_unmap(void *start, size_t size);

/* Zeroed private memory; NULL when there is none. */
void *gaia_prim_memory(size_t size);

/* The same, but a forked child sees it zeroed again. */
void *gaia_prim_memory_wiped_on_fork(size_t size);

/* A short text file into BUFFER, ended with 0. Bytes read, or -1 (then *missing tells "no such file"). */
long gaia_prim_read(const char *path, char *buffer, size_t size, bool *missing);

/* What the link PATH says, ended with 0; -1 when it cannot be read. */
long gaia_prim_link(const char *path, char *buffer, size_t size);

uint32_t gaia_prim_pid(void);
bool gaia_prim_gone(uint32_t pid); /* no such process at all */
uint64_t gaia_prim_image(void);    /* differs between two programs that one process executes in turn */
void gaia_prim_sleep(uint64_t nanoseconds);
uint64_t gaia_prim_now(void); /* CLOCK_MONOTONIC, ns */

/* Sleep while the low half of WORD reads VALUE, until somebody wakes it, at most NANOSECONDS (0 = no
 * limit). SHARED: the word lies in a page that several processes map; reading it is enough. */
void gaia_prim_wait(const _Atomic uint64_t *word, uint32_t value, uint64_t nanoseconds, bool shared);
void gaia_prim_wake(_Atomic uint64_t *word); /* all who sleep on it in this process */

/* Run FUNCTION in a thread of its own that takes no signals. False when there can be none. */
bool gaia_prim_thread(void *(*function)(void *), void *argument);
uint64_t gaia_prim_self(void); /* a name of the calling thread among those alive; never 0 */

/* A stamp of the same clock, exact to a few milliseconds, without reading a hardware counter. Stamps of
 * one second differ by nanoseconds; across a second they differ by 74 ms too much. A shift is cheaper than
 * a multiplication, and whoever asks "less than 10 ms ago?" only asks once a second too often. */
static inline uint64_t gaia_prim_stamp(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec << 30 | (uint64_t)t.tv_nsec;
}

#endif
