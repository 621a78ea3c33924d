/*
 * race.c - is the memory limit exact when several processes race for it?
 *
 * P processes of T threads allocate and free random sizes so that together they
 * ask for about twice --limit, for a while, then the highest total that the
 * simulated driver ever had out is compared with the limit.
 *
 *   race [--procs P] [--threads T] [--seconds S] [--limit BYTES] [--max BYTES]
 *        [--kill MS] [--label TEXT] --state FILE
 *
 * --kill MS  also SIGKILL one random process every MS ms and start another.
 * --state F  the simulated driver's shared file, where the truth is.
 * At the end, after all have left, one last process asks for the whole limit:
 * it must get it (nothing leaked by the others).
 */
#define _GNU_SOURCE
#include "../../libvgpu/sim/state.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
static int procs = 4, threads = 1, kill_ms;
static double seconds = 5;
static size_t limit = 1u << 30, max_size;
static struct { _Atomic uint64_t ok, refused, other; } * cnt;
static int (*f_alloc)(CUdeviceptr *, size_t), (*f_free)(CUdeviceptr), (*f_set)(void *);
static void *ctx;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static int cuda(void) {
    void *h = dlopen("libcuda.so.1", RTLD_NOW);
    if (!h)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(h, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(h, "cuDevicePrimaryCtxRetain");
    f_set = (int (*)(void *))dlsym(h, "cuCtxSetCurrent");
    f_alloc = (int (*)(CUdeviceptr *, size_t))dlsym(h, "cuMemAlloc_v2");
    f_free = (int (*)(CUdeviceptr))dlsym(h, "cuMemFree_v2");
    return init(0) || retain(&ctx, 0) || f_set(ctx);
}
enum { HOLD = 8 };
static void *work(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg ^ (unsigned)getpid();
    CUdeviceptr held[HOLD] = {0};
    uint64_t end = now() + (uint64_t)(seconds * 1e9);
    f_set(ctx);
    while (now() < end) {
        int i = rand_r(&seed) % HOLD;
        if (held[i]) {
            f_free(held[i]);
            held[i] = 0;
            continue;
        }
        size_t n = (size_t)rand_r(&seed) % max_size + 1;
        int r = f_alloc(&held[i], n);
        if (r == 0)
            cnt->ok++;
        else {
            held[i] = 0;
            if (r == 2)
                cnt->refused++;
            else
                cnt->other++;
        }
    }
    for (int i = 0; i < HOLD; i++)
        if (held[i])
            f_free(held[i]);
    return NULL;
}
static pid_t child(int n) {
    pid_t c = fork();
    if (c)
        return c;
    if (cuda())
        _exit(1);
    pthread_t t[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&t[i], NULL, work, (void *)(uintptr_t)(n * 64 + i + 1));
    for (int i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    exit(0);
}
int main(int argc, char **argv) {
    const char *label = "race", *state = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (!strcmp(k, "--procs"))
            procs = atoi(v);
        else if (!strcmp(k, "--threads"))
            threads = atoi(v);
        else if (!strcmp(k, "--seconds"))
            seconds = atof(v);
        else if (!strcmp(k, "--limit"))
            limit = strtoull(v, NULL, 0);
        else if (!strcmp(k, "--max"))
            max_size = strtoull(v, NULL, 0);
        else if (!strcmp(k, "--kill"))
            kill_ms = atoi(v);
        else if (!strcmp(k, "--label"))
            label = v;
        else if (!strcmp(k, "--state"))
            state = v;
        else
            return 2;
    }
    if (procs > 64 || threads > 64)
        return 2;
    if (!max_size) /* HOLD/2 held on average, twice the limit in all */
        max_size = 2 * limit * 2 / ((size_t)procs * (size_t)threads * (HOLD / 2));
    cnt = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = state ? open(state, O_RDWR) : -1;
    struct sim_state *g =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *g, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (g == MAP_FAILED) {
        fprintf(stderr, "race: --state must name the simulator's file\n");
        return 2;
    }
    atomic_store(&g->card[0].peak, atomic_load(&g->card[0].used));
    pid_t c[64];
    for (int i = 0; i < procs; i++)
        c[i] = child(i);
    int kills = 0;
    uint64_t end = now() + (uint64_t)(seconds * 1e9) - 200000000u;
    while (kill_ms && now() < end) {
        usleep((useconds_t)kill_ms * 1000u);
        int i = rand() % procs;
        kill(c[i], SIGKILL);
        waitpid(c[i], NULL, 0);
        c[i] = child(1000 + kills++);
    }
    int st, bad = 0;
    while (wait(&st) > 0)
        if (!WIFEXITED(st) || WEXITSTATUS(st))
            bad++;
    uint64_t peak = atomic_load(&g->card[0].peak);
    const char *last = "-";
    pid_t z = fork();
    if (z == 0) {
        CUdeviceptr q;
        if (cuda())
            _exit(3);
        _exit(f_alloc(&q, limit) ? 1 : f_free(q) ? 2 : 0);
    }
    waitpid(z, &st, 0);
    last = WIFEXITED(st) ? WEXITSTATUS(st) == 0 ? "yes" : WEXITSTATUS(st) == 1 ? "no" : "error" : "died";
    printf("%s\tprocs=%d\tthreads=%d\tkills=%d\tlimit\t%zu\tpeak\t%llu\tover_bytes\t%lld\tok\t%"
           "llu\trefused\t%llu\tother\t%llu\tfailed_procs\t%d\twhole_limit_again\t%s\n",
           label, procs, threads, kills, limit, (unsigned long long)peak,
           (long long)(peak > limit ? peak - limit : 0), (unsigned long long)cnt->ok,
           (unsigned long long)cnt->refused, (unsigned long long)cnt->other, bad, last);
    return 0;
}
