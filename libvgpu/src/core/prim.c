#define _GNU_SOURCE
#include "core/prim.h"
#include "core/glibc.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#if defined(SYS_newfstatat)
#define GAIA_SYS_FSTATAT SYS_newfstatat
#else
#define GAIA_SYS_FSTATAT SYS_fstatat
#endif

/* By number, not through libc: stat() and fstat() carry a version number of 2.33 when linked against a
 * new glibc, and did not exist as functions before. */
bool gaia_prim_stat(const char *path, struct gaia_file *file) {
    struct stat st;
    if (syscall(GAIA_SYS_FSTATAT, AT_FDCWD, path, &st, 0) != 0 || !S_ISREG(st.st_mode))
        return false;
    *file = (struct gaia_file){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size};
    return true;
}

void *gaia_prim_map(const char *path, size_t size, bool writable, struct gaia_file *file) {
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return NULL;
    struct stat st;
    void *start = MAP_FAILED;
    /* A map longer than its file dies with SIGBUS at the first touch: the size is asked for first. */
    if (syscall(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= 0 &&
        (uint64_t)st.st_size >= size)
        start = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    close(fd);
    if (start == MAP_FAILED)
        return NULL;
    madvise(start, size, MADV_DONTFORK); /* a child maps its own; failing here is harmless */
    *file = (struct gaia_file){(uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size};
    return start;
}

void gaia_prim_unmap(void *start, size_t size) { munmap(start, size); }

void *gaia_prim_memory(size_t size) {
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

/* Kernels before 4.14 and some sandboxes have no MADV_WIPEONFORK: there a fork handler wipes, which a
 * child made by a raw clone() does not run. */
static void *fork_start;
static size_t fork_size;
static void wipe_after_fork(void) { memset(fork_start, 0, fork_size); }

void *gaia_prim_memory_wiped_on_fork(size_t size) {
    void *start = gaia_prim_memory(size);
    if (!start || madvise(start, size, MADV_WIPEONFORK) == 0)
        return start;
    if (fork_start == NULL) {
        fork_start = start;
        fork_size = size;
        if (pthread_atfork(NULL, NULL, wipe_after_fork) == 0)
            return start;
    }
    munmap(start, size);
    return NULL;
}

long gaia_prim_read(const char *path, char *buffer, size_t size, bool *missing) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *missing = fd < 0 && errno == ENOENT;
    if (fd < 0)
        return -1;
    long n = read(fd, buffer, size - 1);
    *missing = n < 0 && errno == ESRCH; /* the process ended between open and read */
    close(fd);
    if (n >= 0)
        buffer[n] = 0;
    return n;
}

long gaia_prim_link(const char *path, char *buffer, size_t size) {
    long n = readlink(path, buffer, size - 1);
    if (n >= 0)
        buffer[n] = 0;
    return n;
}

uint32_t gaia_prim_pid(void) { return (uint32_t)getpid(); }

bool gaia_prim_gone(uint32_t pid) { return kill((pid_t)pid, 0) != 0 && errno == ESRCH; }

/* The kernel gives every executed program 16 fresh random bytes. They seed libc's stack guard, so only
 * 32 mixed bits of them leave this function. */
uint64_t gaia_prim_image(void) {
    const unsigned char *random = (const unsigned char *)(uintptr_t)getauxval(AT_RANDOM);
    uint64_t half[2] = {1, 1};
    if (random)
        memcpy(half, random, sizeof half);
    uint64_t mix = (half[0] ^ (half[1] << 29 | half[1] >> 35)) * UINT64_C(0x9e3779b97f4a7c15);
    mix = (mix ^ mix >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return mix >> 32 | UINT64_C(1) << 32; /* never 0, which means "not yet written" */
}

void gaia_prim_sleep(uint64_t nanoseconds) {
    struct timespec t = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
    nanosleep(&t, NULL);
}

uint64_t gaia_prim_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static const uint32_t *low_half(const _Atomic uint64_t *word) {
    return (const uint32_t *)(const void *)word + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

void gaia_prim_wait(const _Atomic uint64_t *word, uint32_t value, uint64_t nanoseconds, bool shared) {
    struct timespec t = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};
    syscall(SYS_futex, low_half(word), shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value,
            nanoseconds ? &t : NULL, NULL, 0);
}

void gaia_prim_wake(_Atomic uint64_t *word) {
    syscall(SYS_futex, low_half(word), FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool gaia_prim_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    sigset_t all, before;
    /* A thread inherits what is blocked: the program's handlers must never run on ours. */
    sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    bool made = pthread_create(&thread, NULL, function, argument) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (made)
        pthread_detach(thread);
    return made;
}

uint64_t gaia_prim_self(void) { return (uint64_t)pthread_self(); }
