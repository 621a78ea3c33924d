/*
 * bench.c - what does an interposer add to one CUDA driver call?
 *
 * Loads libcuda.so.1 the way a runtime does, runs tight loops of
 *   pair     cuMemAlloc_v2 + cuMemFree_v2
 *   launch   cuLaunchKernel (grid --grid, 1 thread block dimension 128)
 *   meminfo  cuMemGetInfo_v2
 * in T threads of each of P processes, all started together, and prints for
 * each operation the median, minimum and maximum over the runs of the mean
 * nanoseconds per call: wall time, and the calling threads' CPU time, which
 * other load on the machine disturbs less (but which leaves out sleeping in a
 * lock or a limiter).  Meant for the simulated driver; run it
 * once without and once with the interposer and take the ratio.
 *
 *   bench [--via dlsym|getproc|getproc1|direct] [--threads T] [--procs P]
 *         [--runs R] [--ms M] [--live K] [--size BYTES] [--grid G]
 *         [--ops pair,launch,meminfo] [--label TEXT] [--pids FILE] [--settle MS]
 *   bench spawn N PROGRAM [ARG...]     median start-to-exit time of a process
 *
 * --live K    hold K further allocations while measuring (trackers that keep a
 *             list show it here)
 * --pids F    write the pids of the P processes to F, sorted, as binary ints
 *             (a node agent would; some interposers read such a file)
 * --settle M  wait M ms after initialisation, so that a watcher thread runs
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long CUdeviceptr;
typedef void *H;
typedef int (*gp2_t)(const char *, void **, int, uint64_t, int *);
typedef int (*gp1_t)(const char *, void **, int, uint64_t);

static struct {
    int (*init)(unsigned), (*devget)(int *, int), (*retain)(H *, int), (*setcur)(H);
    int (*alloc)(CUdeviceptr *, size_t), (*free)(CUdeviceptr), (*info)(size_t *, size_t *);
    int (*launch)(H, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, H, void **,
                  void **);
} cu;

static const char *via = "dlsym", *label = "direct", *pidfile, *ops = "pair,launch,meminfo";
static int threads = 1, procs = 1, runs = 7, ms = 60, live, settle;
static unsigned grid = 64;
static size_t size = 1 << 20;
static const char *const op_name[] = {"pair", "launch", "meminfo"};
enum { N_OPS = 3, MAX_RUNS = 64, MAX_W = 64 };

static struct shared {
    _Atomic int arrived[4096], go[4096];
    double ns[N_OPS][MAX_RUNS][MAX_W], cpu[N_OPS][MAX_RUNS][MAX_W];
    _Atomic int failed;
    _Atomic uint64_t iters[N_OPS];
    int pid[MAX_W];
} * sh;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void die(const char *m, int r) {
    fprintf(stderr, "bench: %s: %d\n", m, r);
    if (sh)
        atomic_store(&sh->failed, 1);
    _exit(1);
}
static void barrier(int *step) {
    int s = (*step)++, all = threads * procs;
    if (atomic_fetch_add(&sh->arrived[s], 1) + 1 == all)
        atomic_store(&sh->go[s], 1);
    while (!atomic_load(&sh->go[s])) {
        if (atomic_load(&sh->failed))
            _exit(1);
        sched_yield();
    }
}

static void *sym(void *h, const char *name, const char *base, int ver) {
    void *p = NULL;
    int st;
    if (strcmp(via, "getproc") == 0) {
        gp2_t g = (gp2_t)dlsym(h, "cuGetProcAddress_v2");
        void *again = NULL;
        if (g && g("cuGetProcAddress", &again, 12000, 0, &st) == 0 && again)
            ((gp2_t)again)(base, &p, ver, 0, &st);
    } else if (strcmp(via, "getproc1") == 0) {
        gp1_t g = (gp1_t)dlsym(h, "cuGetProcAddress");
        void *again = NULL;
        if (g && g("cuGetProcAddress", &again, 11030, 0) == 0 && again)
            ((gp1_t)again)(base, &p, ver, 0);
    } else
        p = dlsym(strcmp(via, "direct") == 0 ? RTLD_DEFAULT : h, name);
    if (!p)
        die(name, -1);
    return p;
}

static H ctx, function;
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";
static void start(void) {
    void *h = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(via, "direct") == 0 ? RTLD_GLOBAL : 0));
    if (!h) {
        fprintf(stderr, "bench: %s\n", dlerror());
        die("dlopen", 0);
    }
    *(void **)&cu.init = sym(h, "cuInit", "cuInit", 2000);
    *(void **)&cu.devget = sym(h, "cuDeviceGet", "cuDeviceGet", 2000);
    *(void **)&cu.retain = sym(h, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000);
    *(void **)&cu.setcur = sym(h, "cuCtxSetCurrent", "cuCtxSetCurrent", 4000);
    *(void **)&cu.alloc = sym(h, "cuMemAlloc_v2", "cuMemAlloc", 3020);
    *(void **)&cu.free = sym(h, "cuMemFree_v2", "cuMemFree", 3020);
    *(void **)&cu.info = sym(h, "cuMemGetInfo_v2", "cuMemGetInfo", 3020);
    *(void **)&cu.launch = sym(h, "cuLaunchKernel", "cuLaunchKernel", 4000);
    int (*load)(H *, const void *), (*get)(H *, H, const char *);
    *(void **)&load = sym(h, "cuModuleLoadData", "cuModuleLoadData", 2000);
    *(void **)&get = sym(h, "cuModuleGetFunction", "cuModuleGetFunction", 2000);
    H module;
    int r, d;
    if ((r = cu.init(0)) || (r = cu.devget(&d, 0)) || (r = cu.retain(&ctx, d)) || (r = cu.setcur(ctx)) ||
        (r = load(&module, ptx)) || (r = get(&function, module, "k")))
        die("initialisation", r);
}

static uint64_t loop(int op, uint64_t n) {
    uint64_t t = now();
    int r = 0;
    if (op == 0) {
        for (uint64_t i = 0; i < n; i++) {
            CUdeviceptr p;
            r |= cu.alloc(&p, size);
            r |= cu.free(p);
        }
    } else if (op == 1) {
        for (uint64_t i = 0; i < n; i++)
            r |= cu.launch(function, grid, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL);
    } else {
        size_t f, tot;
        for (uint64_t i = 0; i < n; i++)
            r |= cu.info(&f, &tot);
    }
    t = now() - t;
    if (r)
        die(op_name[op], r);
    return t;
}

struct w {
    int proc, thread;
};
static void *work(void *arg) {
    struct w *w = arg;
    int step = 0, me = w->proc * threads + w->thread;
    if (cu.setcur(ctx))
        die("cuCtxSetCurrent", 0);
    for (int op = 0; op < N_OPS; op++) {
        if (!strstr(ops, op_name[op]))
            continue;
        barrier(&step);
        if (me == 0) { /* one worker alone finds the iteration count */
            uint64_t n = 16, t;
            while ((t = loop(op, n)) < 2000000u)
                n *= 4;
            n = (uint64_t)((double)n * ms * 1e6 / (double)(t ? t : 1));
            atomic_store(&sh->iters[op], n < 1 ? 1 : n);
        }
        barrier(&step);
        uint64_t n = atomic_load(&sh->iters[op]);
        for (int r = 0; r < runs; r++) {
            barrier(&step);
            uint64_t c = cpu_now();
            sh->ns[op][r][me] = (double)loop(op, n) / (double)n;
            sh->cpu[op][r][me] = (double)(cpu_now() - c) / (double)n;
        }
    }
    barrier(&step);
    return NULL;
}

static int cmp(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static int cmpi(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static int spawn_bench(int n, char **argv) {
    extern char **environ;
    double t[1001];
    if (n > 1001)
        n = 1001;
    for (int i = 0; i < n; i++) {
        pid_t p;
        int st;
        uint64_t a = now();
        if (posix_spawnp(&p, argv[0], NULL, NULL, argv, environ) || waitpid(p, &st, 0) < 0 || st) {
            fprintf(stderr, "bench: %s failed\n", argv[0]);
            return 1;
        }
        t[i] = (double)(now() - a) / 1e3;
    }
    qsort(t, (size_t)n, sizeof *t, cmp);
    printf("spawn\t%s\tmedian_us\t%.0f\tmin\t%.0f\tmax\t%.0f\n", argv[0], t[n / 2], t[0], t[n - 1]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 4 && strcmp(argv[1], "spawn") == 0)
        return spawn_bench(atoi(argv[2]), argv + 3);
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (!strcmp(k, "--via"))
            via = v;
        else if (!strcmp(k, "--threads"))
            threads = atoi(v);
        else if (!strcmp(k, "--procs"))
            procs = atoi(v);
        else if (!strcmp(k, "--runs"))
            runs = atoi(v);
        else if (!strcmp(k, "--ms"))
            ms = atoi(v);
        else if (!strcmp(k, "--live"))
            live = atoi(v);
        else if (!strcmp(k, "--size"))
            size = strtoull(v, NULL, 0);
        else if (!strcmp(k, "--grid"))
            grid = (unsigned)atoi(v);
        else if (!strcmp(k, "--ops"))
            ops = v;
        else if (!strcmp(k, "--label"))
            label = v;
        else if (!strcmp(k, "--pids"))
            pidfile = v;
        else if (!strcmp(k, "--settle"))
            settle = atoi(v);
        else {
            fprintf(stderr, "bench: unknown option %s\n", k);
            return 2;
        }
    }
    if (runs > MAX_RUNS || threads * procs > MAX_W || threads < 1 || procs < 1)
        return 2;
    sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sh == MAP_FAILED)
        return 2;
    int gate[2];
    if (pipe(gate))
        return 2;
    for (int p = 0; p < procs; p++) {
        pid_t c = fork();
        if (c == 0) {
            char b;
            close(gate[1]);
            if (read(gate[0], &b, 1) < 0) {
            }
            start();
            CUdeviceptr keep;
            for (int i = 0; i < live; i++) {
                int r = cu.alloc(&keep, 4096);
                if (r)
                    die("live allocation", r);
            }
            if (settle)
                usleep((useconds_t)settle * 1000u);
            pthread_t t[MAX_W];
            struct w w[MAX_W];
            for (int i = 0; i < threads; i++) {
                w[i] = (struct w){p, i};
                pthread_create(&t[i], NULL, work, &w[i]);
            }
            for (int i = 0; i < threads; i++)
                pthread_join(t[i], NULL);
            exit(0);
        }
        sh->pid[p] = c;
    }
    if (pidfile) {
        int fd = open(pidfile, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        int sorted[MAX_W];
        memcpy(sorted, sh->pid, sizeof sorted);
        qsort(sorted, (size_t)procs, sizeof(int), cmpi);
        if (fd < 0 || write(fd, sorted, sizeof(int) * (size_t)procs) < 0)
            perror(pidfile);
        close(fd);
    }
    close(gate[0]);
    close(gate[1]); /* children go */
    int bad = 0, st;
    while (wait(&st) > 0)
        bad |= st;
    if (bad || atomic_load(&sh->failed)) {
        printf("%s\tFAILED\tthreads=%d\tprocs=%d\tlive=%d\n", label, threads, procs, live);
        return 1;
    }
    for (int op = 0; op < N_OPS; op++) {
        if (!strstr(ops, op_name[op]))
            continue;
        double v[MAX_RUNS], c[MAX_RUNS];
        for (int r = 0; r < runs; r++) {
            v[r] = c[r] = 0;
            for (int i = 0; i < threads * procs; i++) {
                v[r] += sh->ns[op][r][i] / (threads * procs);
                c[r] += sh->cpu[op][r][i] / (threads * procs);
            }
        }
        qsort(v, (size_t)runs, sizeof *v, cmp);
        qsort(c, (size_t)runs, sizeof *c, cmp);
        printf("%s\t%s\tthreads=%d\tprocs=%d\tlive=%d\twall_ns\t%.1f\tmin\t%.1f\tmax\t%.1f\tcpu_ns\t%."
               "1f\tmin\t%.1f\tmax\t%.1f\n",
               label, op_name[op], threads, procs, live, v[runs / 2], v[0], v[runs - 1], c[runs / 2], c[0],
               c[runs - 1]);
    }
    return 0;
}
