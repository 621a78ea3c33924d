/* page.c - the test's side of a slot: makes and changes pages, reads usage and the simulator's truth.
 *
 *   page make DIR                              empty `limits` and `usage`
 *   page card DIR I UUID LIMIT CEILING REPORT CONTEXT
 *   page limit DIR I BYTES
 *   page compute DIR I MODE RATE GUARANTEE     changes the compute words and wakes who waits for them
 *   page heartbeat DIR AGE                     the agent was here AGE ns ago
 *   page meter DIR                             one line per place: index pid, of card 0 busy throttled
 * launches page bucket DIR I NS                       nonsense into the bucket: paid until now + NS page
 * overhead DIR PLACE I BYTES            as the agent does once it has measured that process page usage DIR
 * one line per place: index pid start card used pending context
 * ... page truth STATE                           one line per card: index used peak page peak STATE I start a
 * new peak page fault STATE FAMILY COUNT CODE         the next COUNT calls of a family fail page delay STATE
 * FAMILY NS                 every call of a family takes so long
 */
#define _GNU_SOURCE
#include "../sim/state.h"
#include "gaia_pages.h"
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void *map(const char *path, size_t size, int create) {
    int fd = open(path, O_RDWR | (create ? O_CREAT | O_EXCL : 0), 0666);
    if (fd < 0 || (create && (fchmod(fd, 0666) || ftruncate(fd, (off_t)size)))) {
        perror(path);
        exit(1);
    }
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(fd);
    return start;
}

static void *page(const char *directory, const char *name, size_t size, int create) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return map(path, size, create);
}

static struct gaia_limits *limits(const char *directory) {
    return page(directory, "limits", sizeof(struct gaia_limits), 0);
}

static struct gaia_usage *usage(const char *directory) {
    return page(directory, "usage", sizeof(struct gaia_usage), 0);
}

static uint64_t number(const char *text) { return strtoull(text, NULL, 0); }

static int make(char **a) {
    struct gaia_limits *l = page(a[0], "limits", sizeof *l, 1);
    struct gaia_usage *u = page(a[0], "usage", sizeof *u, 1);
    l->layout_version = u->layout_version = GAIA_LAYOUT_VERSION;
    l->size = sizeof *l;
    u->size = sizeof *u;
    l->state = GAIA_SLOT_APPLIED;
    u->magic = GAIA_USAGE_MAGIC;
    l->magic = GAIA_LIMITS_MAGIC;
    return 0;
}

static int card(char **a) {
    struct gaia_limits *l = limits(a[0]);
    struct gaia_limits_card *c = &l->card[number(a[1])];
    unsigned char uuid[16];
    const char *at = a[2] + 4; /* after "GPU-" */
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        at += *at == '-';
        if (sscanf(at, "%2x", &byte) != 1)
            return 1;
        uuid[i] = (unsigned char)byte;
        at += 2;
    }
    l->sequence++;
    memcpy((void *)c->uuid, uuid, 16);
    c->memory_limit = number(a[3]);
    c->memory_ceiling = number(a[4]);
    c->memory_report = number(a[5]);
    c->context_bytes = number(a[6]);
    c->compute_mode = GAIA_COMPUTE_HARD;
    c->rate_ppm = c->guarantee_ppm = c->ceiling_ppm = 1000000;
    if (l->card_count <= number(a[1]))
        l->card_count = number(a[1]) + 1;
    l->sequence++;
    return 0;
}

static int set_limit(char **a) {
    atomic_store(&limits(a[0])->card[number(a[1])].memory_limit, number(a[2]));
    return 0;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compute(char **a) {
    struct gaia_limits *l = limits(a[0]);
    struct gaia_limits_card *c = &l->card[number(a[1])];
    l->sequence++;
    c->compute_mode = number(a[2]);
    c->rate_ppm = number(a[3]);
    c->guarantee_ppm = number(a[4]);
    l->sequence++;
    c->futex++;
    syscall(SYS_futex, &c->futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 0;
}

static int heartbeat(char **a) {
    limits(a[0])->heartbeat_ns = now() - number(a[1]);
    return 0;
}

static int meter(char **a) {
    struct gaia_usage *u = usage(a[0]);
    for (uint64_t i = 0; i < u->high_water && i < GAIA_PROCESSES; i++) {
        struct gaia_usage_card *c = &u->process[i].card[0];
        printf("%" PRIu64 " %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", i, GAIA_OWNER_PID(u->process[i].owner),
               c->busy_ns, c->throttled_ns, c->launches);
    }
    return 0;
}

static int bucket(char **a) {
    usage(a[0])->bucket[number(a[1])].paid_until_ns = now() + number(a[2]);
    return 0;
}

static int overhead(char **a) {
    uint64_t place = number(a[1]);
    struct gaia_limits_process *p = &limits(a[0])->process[place];
    p->overhead[number(a[2])] = number(a[3]);
    p->owner = usage(a[0])->process[place].owner;
    return 0;
}

static int show(char **a) {
    struct gaia_usage *u = usage(a[0]);
    printf("%" PRIu64 "\n", u->high_water);
    for (uint64_t i = 0; i < u->high_water && i < GAIA_PROCESSES; i++) {
        struct gaia_usage_process *p = &u->process[i];
        printf("%" PRIu64 " %u %" PRIu64, i, GAIA_OWNER_PID(p->owner), (uint64_t)GAIA_OWNER_START(p->owner));
        for (int c = 0; c < 4; c++)
            printf(" %" PRIu64 " %" PRIu64 " %" PRIu64, p->card[c].used, p->card[c].pending,
                   p->card[c].context);
        printf("\n");
    }
    return 0;
}

static struct sim_state *state(const char *path) { return map(path, sizeof(struct sim_state), 0); }

static int truth(char **a) {
    struct sim_state *s = state(a[0]);
    for (int i = 0; i < SIM_CARDS; i++)
        printf("%d %" PRIu64 " %" PRIu64 "\n", i, s->card[i].used, s->card[i].peak);
    return 0;
}

static int peak(char **a) {
    struct sim_state *s = state(a[0]);
    s->card[number(a[1])].peak = s->card[number(a[1])].used;
    return 0;
}

static int family(const char *name) {
    static const char *const names[] = {"alloc",  "free", "pool",         "vmm",          "context",
                                        "info",   "copy", "launch",       "sync",         "stream",
                                        "module", "nvml", "event_create", "event_record", "event_query"};
    for (int i = 0; i < SIM_FAMILIES; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    exit(2);
}

static int fault(char **a) {
    state(a[0])->trouble[family(a[1])].fault = number(a[2]) << 32 | number(a[3]);
    return 0;
}

static int delay(char **a) {
    state(a[0])->trouble[family(a[1])].delay = number(a[2]);
    return 0;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        int (*run)(char **);
    } verbs[] = {{"make", 1, make},       {"card", 7, card},           {"limit", 3, set_limit},
                 {"compute", 5, compute}, {"heartbeat", 2, heartbeat}, {"meter", 1, meter},
                 {"bucket", 3, bucket},   {"overhead", 4, overhead},   {"usage", 1, show},
                 {"truth", 1, truth},     {"peak", 2, peak},           {"fault", 4, fault},
                 {"delay", 3, delay}};
    for (unsigned i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (argc > 1 && strcmp(argv[1], verbs[i].name) == 0 && argc == verbs[i].arguments + 2)
            return verbs[i].run(argv + 2);
    fprintf(stderr, "page: what is wanted?\n");
    return 2;
}
