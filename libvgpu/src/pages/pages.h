/*
 * pages.h - libgaia_pages.so: the agent's way to make both pages of a slot and to write `limits`.
 *
 * Called from Python through ctypes. A function that returns int returns 0, or a negative errno:
 * -EBADMSG for a file that is not the page it should be, -ERANGE for an offset outside the page.
 * A page handle is used by one thread at a time.
 */
#ifndef GAIA_PAGES_LIBRARY_H
#define GAIA_PAGES_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#define GAIA_PAGES_API __attribute__((visibility("default")))

struct gaia_page;

struct gaia_number {
    const char *name;
    uint64_t value;
};

/* Offsets, sizes and counts of gaia_pages.h by name. Offsets of words within a card or a process
 * count from the start of that card or process. */
const struct gaia_number *gaia_page_layout(size_t *count);

/* Make a page of zeros but for its header, written in full under a name of its own beside `path`
 * and then renamed to `path`. The file has exactly the mode given, whatever the umask. */
int gaia_limits_create(const char *path, uint32_t mode);
int gaia_usage_create(const char *path, uint32_t mode);

/* Map the limits page at `path` for writing, after checking that it is one. */
int gaia_limits_open(const char *path, struct gaia_page **page);
void gaia_page_close(struct gaia_page *page);

/* Begin a group: the sequence becomes odd, also when a killed writer left it odd. Refuses (-EBADMSG)
 * a file that was truncated since it was mapped: a store there would kill the agent. */
int gaia_page_begin(struct gaia_page *page);
/* Store one word, at once and whole. */
int gaia_page_store(struct gaia_page *page, uint64_t offset, uint64_t value);
/* End a group: the sequence becomes even, then a full fence: whatever is read afterwards was read
 * after every word of the group was there for all. */
int gaia_page_end(struct gaia_page *page);
int gaia_page_load(struct gaia_page *page, uint64_t offset, uint64_t *value);
void gaia_page_fence(void);

/* Change the futex word at `offset` and wake every process that waits for it. */
int gaia_page_wake(struct gaia_page *page, uint64_t offset);
/* Say that the agent lives: heartbeat_ns := CLOCK_MONOTONIC. */
int gaia_page_heartbeat(struct gaia_page *page);

#endif
