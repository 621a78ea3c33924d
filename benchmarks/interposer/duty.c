/*
 * duty.c - keeps a card busy in one way, for as long as it is let: the tenant of benchmarks/compute.py and
 * of the tests of the compute limit. Which share it got is read from the simulated card, not from here.
 *
 *   duty [--how WAY] [--ns NS] [--blocks N] [--sync N] [--streams N] [--threads N] [--seconds S] [--fork 1]
 *        [--devices N]
 *
 * WAY      plain ex cooperative multi launch grid grid_async graph, or one of
 *          plain_ptsz ex_ptsz cooperative_ptsz graph_ptsz
 * --ns     how long a kernel takes (a graph has 100 of them); 0 = as sim.conf says
 * --sync   cuStreamSynchronize after so many launches; 0 = after every 200 ms of work
 * --gap    microseconds of the program's own work after each launch
 * --mix N  every so many launches one takes 100 times as long
 * --capture 1  another stream captures launches all the time
 * --fork 1 a child does it, after the parent has launched once
 * --devices N  "multi" alone: one part of each launch for each of the first N devices
 *
 * Prints "ready" after the first launch, runs until its standard input ends (or S seconds are over), then
 * prints the launches it made and the longest wait in one of them (ns), and the CPU time of the process.
 * A call that fails ends it with status 1 and the call's name.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef void *H;
static void *library;
static const char *how = "plain";
static uint64_t kernel_ns, blocks = 64, sync_every, streams = 1, threads = 1, gap, mix, capture, forks,
                           devices = 1;
static double seconds;
static volatile int stop;
static H context, function, long_function, graph;
static struct { H function, stream; } part_of[8]; /* of the devices after the first */
static uint64_t deadline;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void check(int result, const char *call) {
    if (result == 0)
        return;
    printf("failed %s %d\n", call, result);
    fflush(stdout);
    _exit(1);
}

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (!found)
        check(-1, name);
    return found;
}

/* Integer arguments travel alike, whatever their width. */
typedef int (*call)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                    uint64_t, uint64_t);
#define P(x) ((uint64_t)(uintptr_t)(x))
static int cu(const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    return ((call)find(name))(a, b, c, d, 0, 0, 0, 0, 0, 0, 0);
}
#define CU(name, a, b, c, d) check(cu(name, a, b, c, d), name)

/* ---- ways to launch ---------------------------------------------------------------------------------- */

static call entry; /* of the way chosen */

static int plain(H f, H stream) { return entry(P(f), blocks, 1, 1, 128, 1, 1, 0, P(stream), 0, 0); }
static int ex(H f, H stream) {
    struct {
        unsigned grid[3], block[3], shared;
        H stream;
        void *attributes;
        unsigned count;
    } config = {{(unsigned)blocks, 1, 1}, {128, 1, 1}, 0, stream, NULL, 0};
    return entry(P(&config), P(f), 0, 0, 0, 0, 0, 0, 0, 0, 0);
}
static int multi(H f, H stream) {
    struct {
        H function;
        unsigned grid[3], block[3], shared;
        H stream;
        void **parameters;
    } part[8] = {{f, {(unsigned)blocks, 1, 1}, {128, 1, 1}, 0, stream, NULL}};
    for (uint64_t d = 1; d < devices; d++) {
        part[d] = part[0];
        part[d].function = part_of[d].function;
        part[d].stream = part_of[d].stream;
    }
    return entry(P(part), devices, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}
static int old(H f, H stream) { return entry(P(f), blocks, 1, P(stream), 0, 0, 0, 0, 0, 0, 0); }
static int whole_graph(H f, H stream) { return entry(P(graph), P(stream), 0, 0, 0, 0, 0, 0, 0, 0, 0); }

static const struct {
    const char *how, *entry;
    int (*launch)(H, H);
    int default_stream; /* the only one this way knows, or the one that is meant */
} ways[] = {
    {"plain", "cuLaunchKernel", plain, 0},
    {"plain_ptsz", "cuLaunchKernel_ptsz", plain, 1},
    {"ex", "cuLaunchKernelEx", ex, 0},
    {"ex_ptsz", "cuLaunchKernelEx_ptsz", ex, 1},
    {"cooperative", "cuLaunchCooperativeKernel", plain, 0},
    {"cooperative_ptsz", "cuLaunchCooperativeKernel_ptsz", plain, 1},
    {"multi", "cuLaunchCooperativeKernelMultiDevice", multi, 0},
    {"launch", "cuLaunch", old, 1},
    {"grid", "cuLaunchGrid", old, 1},
    {"grid_async", "cuLaunchGridAsync", old, 0},
    {"graph", "cuGraphLaunch", whole_graph, 0},
    {"graph_ptsz", "cuGraphLaunch_ptsz", whole_graph, 1},
};
static unsigned way;

/* ---- the work ------------------------------------------------------------------------------------------ */

static H spin(uint64_t ns) {
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
    char name[64];
    H module, made;
    snprintf(name, sizeof name, "gaia_spin_%llu", (unsigned long long)ns);
    CU("cuModuleLoadData", P(&module), P(ptx), 0, 0);
    CU("cuModuleGetFunction", P(&made), P(module), P(ns ? name : "k"), 0);
    return made;
}

static void make_graph(void) {
    H stream, recorded;
    CU("cuStreamCreate", P(&stream), 1, 0, 0);
    CU("cuStreamBeginCapture_v2", P(stream), 0, 0, 0);
    for (int i = 0; i < 100; i++)
        check(((call)find("cuLaunchKernel"))(P(function), blocks, 1, 1, 128, 1, 1, 0, P(stream), 0, 0),
              "captured cuLaunchKernel");
    CU("cuStreamEndCapture", P(stream), P(&recorded), 0, 0);
    CU("cuGraphInstantiateWithFlags", P(&graph), P(recorded), 0, 0);
}

static void start(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        check(-1, dlerror());
    CU("cuInit", 0, 0, 0, 0);
    for (uint64_t d = 1; d < devices; d++) {
        CU("cuDevicePrimaryCtxRetain", P(&context), d, 0, 0);
        CU("cuCtxSetCurrent", P(context), 0, 0, 0);
        CU("cuStreamCreate", P(&part_of[d].stream), 1, 0, 0);
        part_of[d].function = spin(kernel_ns);
    }
    CU("cuDevicePrimaryCtxRetain", P(&context), 0, 0, 0);
    CU("cuCtxSetCurrent", P(context), 0, 0, 0);
    function = spin(kernel_ns);
    long_function = mix ? spin(100 * kernel_ns) : function;
    entry = (call)find(ways[way].entry);
    if (strncmp(how, "graph", 5) == 0)
        make_graph();
}

static void *capturing(void *argument) {
    H stream, recorded;
    CU("cuCtxSetCurrent", P(context), 0, 0, 0);
    CU("cuStreamCreate", P(&stream), 1, 0, 0);
    while (!stop) {
        CU("cuStreamBeginCapture_v2", P(stream), 1, 0, 0);
        for (int i = 0; i < 20; i++) {
            check(((call)find("cuLaunchKernel"))(P(function), blocks, 1, 1, 128, 1, 1, 0, P(stream), 0, 0),
                  "captured cuLaunchKernel");
            usleep(500);
        }
        CU("cuStreamEndCapture", P(stream), P(&recorded), 0, 0);
        CU("cuGraphDestroy", P(recorded), 0, 0, 0);
    }
    return NULL;
}

struct result {
    uint64_t launches, longest;
};

static void spend(uint64_t microseconds) {
    for (uint64_t until = clock_ns(CLOCK_MONOTONIC) + microseconds * 1000;
         clock_ns(CLOCK_MONOTONIC) < until;) {
    }
}

static void *work(void *argument) {
    struct result *result = argument;
    H stream[64] = {NULL};
    CU("cuCtxSetCurrent", P(context), 0, 0, 0);
    for (uint64_t i = 0; i < streams && streams > 1; i++)
        CU("cuStreamCreate", P(&stream[i]), 1, 0, 0);
    call sync = (call)find(ways[way].default_stream && strstr(how, "ptsz") ? "cuStreamSynchronize_ptsz"
                                                                           : "cuStreamSynchronize");
    for (uint64_t n = 1; !stop; n++) {
        H on = stream[n % streams];
        uint64_t before = clock_ns(CLOCK_MONOTONIC);
        check(ways[way].launch(mix && n % mix == 0 ? long_function : function, on), ways[way].entry);
        uint64_t after = clock_ns(CLOCK_MONOTONIC);
        if (n > 1 && after - before > result->longest)
            result->longest = after - before;
        result->launches = n;
        if (gap)
            spend(gap);
        if (n % sync_every == 0)
            check(sync(P(on), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "cuStreamSynchronize");
        if (deadline && after > deadline)
            stop = 1;
    }
    return NULL;
}

static int run(void) {
    pthread_t thread[64], other;
    struct result result[64] = {{0}}, all = {0};
    if (capture)
        pthread_create(&other, NULL, capturing, NULL);
    deadline = seconds > 0 ? clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9) : 0;
    for (uint64_t i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, &result[i]);
    while (!stop && result[0].launches == 0)
        usleep(100);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    struct pollfd input = {0, POLLIN, 0};
    char byte[16];
    while (!stop)
        if (poll(&input, 1, seconds > 0 ? 10 : 200) > 0 && read(0, byte, sizeof byte) <= 0)
            stop = 1;
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        all.launches += result[i].launches;
        all.longest = result[i].longest > all.longest ? result[i].longest : all.longest;
    }
    if (capture)
        pthread_join(other, NULL);
    printf("%llu %llu %llu\n", (unsigned long long)all.launches, (unsigned long long)all.longest,
           (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"--ns", &kernel_ns},    {"--blocks", &blocks},   {"--sync", &sync_every},
                   {"--streams", &streams}, {"--threads", &threads}, {"--gap", &gap},
                   {"--capture", &capture}, {"--mix", &mix},         {"--fork", &forks},
                   {"--devices", &devices}};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--how") == 0)
            how = argv[i + 1];
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
        for (unsigned k = 0; k < sizeof numbers / sizeof *numbers; k++)
            if (strcmp(argv[i], numbers[k].name) == 0)
                *numbers[k].value = strtoull(argv[i + 1], NULL, 0);
    }
    while (way < sizeof ways / sizeof *ways && strcmp(ways[way].how, how) != 0)
        way++;
    if (way == sizeof ways / sizeof *ways || streams == 0 || streams > 64 || threads == 0 || threads > 64 ||
        devices == 0 || devices > 8)
        return 2;
    if (sync_every == 0)
        sync_every = kernel_ns ? 200000000u / kernel_ns + 1 : 1000;
    start();
    if (!forks)
        return run();
    check(ways[way].launch(function, NULL), ways[way].entry);
    pid_t child = fork();
    if (child == 0) {
        start();
        _exit(run());
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
