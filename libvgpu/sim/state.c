/* state.c - makes, checks and maps the state file, and owns its lock. */
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

struct sim_state *sim_state;
static char sentence[640];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

const char *const sim_family_name[SIM_FAMILIES] = {
    "alloc", "free",   "pool",   "vmm",  "context",      "info",         "copy",       "launch",
    "sync",  "stream", "module", "nvml", "event_create", "event_record", "event_query"};

static const char *because(const char *what, const char *path, const char *why) {
    snprintf(sentence, sizeof sentence, "The simulated GPU cannot %s %.300s: %s.", what, path, why);
    return sentence;
}

static void describe(char *out, size_t size) {
    int n = snprintf(
        out, size,
        "{\"cards\":%u,\"card\":{\"at\":%zu,\"size\":%zu,\"used\":%zu,\"peak\":%zu},"
        "\"process\":{\"at\":%zu,\"size\":%zu,\"count\":%d,\"owner\":%zu,\"image\":%zu,\"card\":%zu,\"card_"
        "size\":%zu,"
        "\"used\":%zu,\"context\":%zu,\"contexts\":%zu,\"launches\":%zu},\"high_water\":%zu,\"start_bits\":"
        "42,"
        "\"trouble\":{\"at\":%zu,\"size\":%zu,\"fault\":%zu,\"delay\":%zu},"
        "\"habit\":{\"mode\":%zu,\"until\":%zu,\"delay\":%zu},\"families\":[",
        sim_config()->machine.count, offsetof(struct sim_state, card), sizeof(struct sim_card_state),
        offsetof(struct sim_card_state, used), offsetof(struct sim_card_state, peak),
        offsetof(struct sim_state, process), sizeof(struct sim_process), SIM_PROCESSES,
        offsetof(struct sim_process, owner), offsetof(struct sim_process, image),
        offsetof(struct sim_process, card), sizeof(struct sim_process_card),
        offsetof(struct sim_process_card, used), offsetof(struct sim_process_card, context),
        offsetof(struct sim_process_card, contexts), offsetof(struct sim_process_card, launches),
        offsetof(struct sim_state, high_water), offsetof(struct sim_state, trouble),
        sizeof(struct sim_trouble), offsetof(struct sim_trouble, fault), offsetof(struct sim_trouble, delay),
        offsetof(struct sim_state, habit.mode), offsetof(struct sim_state, habit.until_ns),
        offsetof(struct sim_state, habit.delay_ns));
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
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
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

static const char *open_state(const struct sim_config *c) {
    int fd = open(c->state, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return because("open", c->state, strerror(errno));
    const char *bad = NULL;
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            bad = because("lock", c->state, strerror(errno));
            break;
        }
    if (!bad)
        bad = map(fd, c->state, sim_hash(&c->machine, sizeof c->machine, 0));
    flock(fd, LOCK_UN); /* closing would not do: the mapping keeps the file open */
    close(fd);
    return bad;
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
