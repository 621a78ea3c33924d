/* Writing a limits page. Every store is one atomic word; groups are bracketed by the sequence. */
#include "gaia_pages.h"
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct gaia_page {
    int fd;
    struct gaia_limits *words;
};

static int check_file(int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0)
        return -errno;
    if (!S_ISREG(status.st_mode) || status.st_size != (off_t)sizeof(struct gaia_limits))
        return -EBADMSG;
    return 0;
}

/* Read with pread before anything is mapped. */
static int check_header(int fd) {
    uint64_t head[3];
    ssize_t got = pread(fd, head, sizeof head, 0);
    if (got < 0)
        return -errno;
    if (got != (ssize_t)sizeof head || head[0] != GAIA_LIMITS_MAGIC || head[1] != GAIA_LAYOUT_VERSION ||
        head[2] != sizeof(struct gaia_limits))
        return -EBADMSG;
    return 0;
}

GAIA_PAGES_API int gaia_limits_open(const char *path, struct gaia_page **page) {
    *page = NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int result = check_file(fd);
    if (result == 0)
        result = check_header(fd);
    void *words = MAP_FAILED;
    if (result == 0) {
        words = mmap(NULL, sizeof(struct gaia_limits), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (words == MAP_FAILED)
            result = -errno;
    }
    struct gaia_page *made = result == 0 ? malloc(sizeof *made) : NULL;
    if (made == NULL) {
        if (words != MAP_FAILED)
            munmap(words, sizeof(struct gaia_limits));
        close(fd);
        return result != 0 ? result : -ENOMEM;
    }
    made->fd = fd;
    made->words = words;
    *page = made;
    return 0;
}

GAIA_PAGES_API void gaia_page_close(struct gaia_page *page) {
    if (page == NULL)
        return;
    munmap(page->words, sizeof(struct gaia_limits));
    close(page->fd);
    free(page);
}

static gaia_word *word_at(struct gaia_page *page, uint64_t offset) {
    if (offset % sizeof(gaia_word) != 0 || offset > sizeof(struct gaia_limits) - sizeof(gaia_word))
        return NULL;
    return (gaia_word *)((char *)page->words + offset);
}

GAIA_PAGES_API int gaia_page_begin(struct gaia_page *page) {
    int result = check_file(page->fd);
    if (result != 0)
        return result;
    uint64_t sequence = atomic_load_explicit(&page->words->sequence, memory_order_relaxed);
    /* Odd already: the last writer was killed. Another odd number, so that a reader that began
     * under that writer does not take our words for part of its group. */
    sequence += sequence % 2 == 0 ? 1 : 2;
    atomic_store_explicit(&page->words->sequence, sequence, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return 0;
}

GAIA_PAGES_API int gaia_page_store(struct gaia_page *page, uint64_t offset, uint64_t value) {
    gaia_word *word = word_at(page, offset);
    if (word == NULL)
        return -ERANGE;
    atomic_store_explicit(word, value, memory_order_release);
    return 0;
}

GAIA_PAGES_API int gaia_page_load(struct gaia_page *page, uint64_t offset, uint64_t *value) {
    gaia_word *word = word_at(page, offset);
    if (word == NULL)
        return -ERANGE;
    *value = atomic_load_explicit(word, memory_order_acquire);
    return 0;
}

GAIA_PAGES_API int gaia_page_end(struct gaia_page *page) {
    uint64_t sequence = atomic_load_explicit(&page->words->sequence, memory_order_relaxed);
    if (sequence % 2 != 0)
        atomic_store_explicit(&page->words->sequence, sequence + 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    return 0;
}

GAIA_PAGES_API void gaia_page_fence(void) { atomic_thread_fence(memory_order_seq_cst); }

GAIA_PAGES_API int gaia_page_wake(struct gaia_page *page, uint64_t offset) {
    gaia_word *word = word_at(page, offset);
    if (word == NULL)
        return -ERANGE;
    atomic_fetch_add_explicit(word, 1, memory_order_seq_cst);
    /* the low half is what waiters sleep on */
    uint32_t *half = (uint32_t *)(void *)word;
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        half++;
    syscall(SYS_futex, half, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 0;
}

GAIA_PAGES_API int gaia_page_heartbeat(struct gaia_page *page) {
    int result = check_file(page->fd);
    if (result != 0)
        return result;
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return -errno;
    uint64_t ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    atomic_store_explicit(&page->words->heartbeat_ns, ns, memory_order_release);
    return 0;
}
