/* state.c - makes, checks, maps and removes the state file, and owns its lock.
 *
 * Two locks on the file itself. The whole of it (flock) is held while it is made, renewed or removed.
 * Its first byte (an open file description lock) is held for reading by whoever has it mapped, and
 * goes when the last mapping goes, however that ends. So the file can be removed exactly when the first
 * lock is held and the second is free; whoever waited for the first then sees that the file has no name
 * any more, and begins anew. */
#define _GNU_SOURCE
#include "state.h"
#include "gaia_pages.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Linux 3.15; headers of glibc before 2.20 lack it */
#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

struct sim_state *sim_state;
int sim_state_file = -1;
static char sentence[640];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

const char *const sim_family_name[SIM_FAMILIES] = {
    "alloc", "free",   "pool",   "vmm",  "context",      "info",         "copy",       "launch",
    "sync",  "stream", "module", "nvml", "event_create", "event_record", "event_query"};

static const char *because(const char *what, const char *path, const char *why) {
    const char *help = strncmp(path, "/dev/shm/", 9) == 0 && (strcmp(what, "use") != 0)
                           ? " It needs 3 MiB in /dev/shm; in a container, mount a tmpfs there."
                           : "";
    snprintf(sentence, sizeof sentence, "The simulated GPU cannot %s %.300s: %s.%s", what, path, why, help);
    return sentence;
}

static void describe(char *out, size_t size) {
    int n = snprintf(
        out, size,
        "{\"cards\":%u,\"card\":{\"at\":%zu,\"size\":%zu,\"used\":%zu,\"peak\":%zu,"
        "\"xids\":%zu,\"xid\":%zu,\"xid_count\":%d},"
        "\"process\":{\"at\":%zu,\"size\":%zu,\"count\":%d,\"owner\":%zu,\"image\":%zu,"
        "\"space\":%zu,\"lock\":%d,\"card\":%zu,\"card_size\":%zu,"
        "\"used\":%zu,\"context\":%zu,\"contexts\":%zu,\"launches\":%zu},\"high_water\":%zu,\"start_bits\":"
        "42,"
        "\"trouble\":{\"at\":%zu,\"size\":%zu,\"fault\":%zu,\"delay\":%zu},"
        "\"habit\":{\"mode\":%zu,\"until\":%zu,\"delay\":%zu},\"families\":[",
        sim_config()->machine.count, offsetof(struct sim_state, card), sizeof(struct sim_card_state),
        offsetof(struct sim_card_state, used), offsetof(struct sim_card_state, peak),
        offsetof(struct sim_card_state, xids), offsetof(struct sim_card_state, xid), SIM_XIDS,
        offsetof(struct sim_state, process), sizeof(struct sim_process), SIM_PROCESSES,
        offsetof(struct sim_process, owner), offsetof(struct sim_process, image),
        offsetof(struct sim_process, space), SIM_PLACE_BYTE, offsetof(struct sim_process, card),
        sizeof(struct sim_process_card), offsetof(struct sim_process_card, used),
        offsetof(struct sim_process_card, context), offsetof(struct sim_process_card, contexts),
        offsetof(struct sim_process_card, launches), offsetof(struct sim_state, high_water),
        offsetof(struct sim_state, trouble), sizeof(struct sim_trouble), offsetof(struct sim_trouble, fault),
        offsetof(struct sim_trouble, delay), offsetof(struct sim_state, habit.mode),
        offsetof(struct sim_state, habit.until_ns), offsetof(struct sim_state, habit.delay_ns));
    for (int i = 0; i < SIM_FAMILIES; i++)
        n += snprintf(out + n, size - (size_t)n, "%s\"%s\"", i ? "," : "", sim_family_name[i]);
    snprintf(out + n, size - (size_t)n, "]}");
}

bool sim_lock_init(pthread_mutex_t *lock) {
    pthread_mutexattr_t a;
    bool good =
        pthread_mutexattr_init(&a) == 0 && pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0 &&
        pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST) == 0 && pthread_mutex_init(lock, &a) == 0;
    pthread_mutexattr_destroy(&a);
    return good;
}

/* Called with the file locked, so nobody else makes or renews it now. */
static const char *prepare(struct sim_state *s, uint64_t cards, const char *path) {
    struct timespec day;
    uint64_t magic = atomic_load(&s->magic);
    if (magic == SIM_MAGIC && atomic_load(&s->config) == cards && atomic_load(&s->size) == sizeof *s &&
        atomic_load(&s->layout_version) == SIM_LAYOUT_VERSION)
        return NULL;
    if (magic != 0 && magic != SIM_MAGIC)
        return because("use", path, "it is not a state file of the simulated GPU; remove it");
    if (magic == SIM_MAGIC && sim_anybody(s))
        return because("use", path, "it belongs to other simulated cards, and programs still run on them");
    memset(s, 0, sizeof *s);
    if (!sim_lock_init(&s->lock) || !sim_timelines_start(s))
        return because("use", path, "this system has no robust mutexes");
    atomic_store(&s->slice_ns, sim_config()->machine.alternate_ms * 1000000);
    atomic_store(&s->habit.delay_ns, sim_config()->machine.sample_delay_ms * 1000000);
    clock_gettime(CLOCK_REALTIME, &day);
    atomic_store(&s->epoch_ns, (uint64_t)day.tv_sec * 1000000000 + (uint64_t)day.tv_nsec - sim_now());
    describe(s->layout, sizeof s->layout);
    atomic_store(&s->config, cards);
    atomic_store(&s->size, sizeof *s);
    atomic_store(&s->layout_version, SIM_LAYOUT_VERSION);
    atomic_store(&s->magic, SIM_MAGIC);
    return NULL;
}

static bool has_magic(int fd) {
    uint64_t magic;
    return pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == SIM_MAGIC;
}

/* The file's blocks are taken at once: a full /dev/shm is then an error here and not a signal later. */
static const char *map(int fd, const char *path, uint64_t cards) {
    struct stat st;
    const char *bad;
    if (fstat(fd, &st) != 0)
        return because("use", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (st.st_uid != geteuid() && !sim_config()->shared))
        return because("use", path, "it is not a file of this user");
    /* one of another version is renewed when nobody uses it: places of processes never moved */
    if (st.st_size != 0 && st.st_size != (off_t)sizeof *sim_state && !has_magic(fd))
        return because("use", path, "it is not a state file of the simulated GPU; remove it");
    int error = posix_fallocate(fd, 0, sizeof *sim_state);
    if (error)
        return because("make", path, strerror(error));
    struct sim_state *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        return because("map", path, strerror(errno));
    bad = prepare(s, cards, path);
    if (bad)
        munmap(s, sizeof *s);
    else
        sim_state = s;
    return bad;
}

static bool lock_whole(int fd) {
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR)
            return false;
    return true;
}

/* Mark the file as in use (F_RDLCK), or make sure that nobody else uses it (F_WRLCK). */
static bool lock_use(int fd, short kind) {
    struct flock use = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &use) == 0;
}

static bool has_name(int fd) {
    struct stat st;
    return fstat(fd, &st) != 0 || st.st_nlink > 0;
}

/* Open the file, made if it is missing, and hold the whole of it. */
static const char *open_locked(const char *path, int *fd) {
    for (;;) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (*fd < 0)
            return because("open", path, strerror(errno));
        if (!lock_whole(*fd)) {
            const char *bad = because("lock", path, strerror(errno));
            close(*fd);
            return bad;
        }
        if (has_name(*fd))
            return NULL;
        close(*fd); /* removed while we waited */
    }
}

static const char *open_state(const struct sim_config *c) {
    int fd;
    const char *bad = open_locked(c->state, &fd);
    if (bad)
        return bad;
    bad = map(fd, c->state, sim_hash(&c->machine, sizeof c->machine, 0));
    if (!bad)
        lock_use(fd, F_RDLCK); /* where it cannot be had, nobody can remove the file either */
    flock(fd, LOCK_UN);        /* closing would not do: the mapping keeps the file open */
    if (bad)
        close(fd);
    else
        sim_state_file = fd;
    return bad;
}

static void remove_unused(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (lock_whole(fd) && has_name(fd) && lock_use(fd, F_WRLCK))
        unlink(path);
    close(fd);
}

/* For the end of a process that watches the cards: let the state go, and remove its file when no other
 * process has it. No other call may be running; a later one maps the state anew. */
__attribute__((visibility("default"))) void gaia_sim_leave(void) {
    pthread_mutex_lock(&opening);
    if (sim_state) {
        munmap(sim_state, sizeof *sim_state);
        sim_state = NULL;
        close(sim_state_file);
        sim_state_file = -1;
        remove_unused(sim_config()->state);
    }
    pthread_mutex_unlock(&opening);
}

const char *sim_open(void) {
    const struct sim_config *c = sim_config();
    const char *bad = NULL;
    if (c->problem[0])
        return c->problem;
    pthread_mutex_lock(&opening);
    if (!sim_state)
        bad = open_state(c);
    pthread_mutex_unlock(&opening);
    return bad;
}

/* For whoever sets a simulation up: NULL when it works here, else a sentence why it does not. */
__attribute__((visibility("default"))) const char *gaia_sim_problem(void) { return sim_open(); }

/* The path of the state file, for the same. */
__attribute__((visibility("default"))) const char *gaia_sim_state(void) { return sim_config()->state; }

void sim_lock(void) {
    if (__builtin_expect(pthread_mutex_lock(&sim_state->lock) == EOWNERDEAD, 0)) {
        /* its owner was killed between two words */
        sim_totals();
        pthread_mutex_consistent(&sim_state->lock);
    }
}

void sim_unlock(void) { pthread_mutex_unlock(&sim_state->lock); }
