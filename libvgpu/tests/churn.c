/* churn.c - a process that only allocates and frees is killed at random moments, also while it starts;
 * each time another process must get what the dead one held, at once.
 *
 *   churn KILLS LIMIT SEED     prints: kills, slowest answer in ms, refusals that should not have been
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int (*alloc)(unsigned long long *, size_t), (*release)(unsigned long long);

static int start(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!library)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
    alloc = (int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2");
    release = (int (*)(unsigned long long))dlsym(library, "cuMemFree_v2");
    return init(0) || retain(&context, 0) || set(context);
}

static void churn(size_t limit) {
    unsigned long long pointer[4] = {0};
    unsigned seed = (unsigned)getpid();
    if (start())
        _exit(1);
    for (unsigned i = 0;; i = (i + 1) % 4) {
        if (pointer[i]) {
            release(pointer[i]);
            pointer[i] = 0;
        } else if (alloc(&pointer[i], (size_t)rand_r(&seed) % (limit / 4) + 1) != 0)
            pointer[i] = 0;
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* a child that asks for the whole limit, which only it can have now, and is refused one byte more */
static int whole(size_t limit) {
    pid_t child = fork();
    if (child == 0) {
        unsigned long long pointer, more;
        if (start())
            _exit(2);
        if (alloc(&pointer, limit) != 0)
            _exit(3);
        _exit(alloc(&more, 1) == 2 ? 0 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int kills = atoi(argv[1]), wrong = 0;
    size_t limit = strtoull(argv[2], NULL, 0);
    unsigned seed = (unsigned)atoi(argv[3]);
    double slowest = 0;
    for (int i = 0; i < kills; i++) {
        pid_t child = fork();
        if (child == 0)
            churn(limit);
        usleep((useconds_t)rand_r(&seed) % (i % 2 ? 2000u : 12000u));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        double from = now();
        int status = whole(limit);
        if (status != 0) {
            wrong++;
            fprintf(stderr, "round %d: %x\n", i, status);
        }
        if (now() - from > slowest)
            slowest = now() - from;
    }
    printf("%d %.0f %d\n", kills, slowest, wrong);
    return 0;
}
