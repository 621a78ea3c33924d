/* rounds.c - several processes ask for the last bytes at the same moment, again and again.
 *
 *   rounds PROCESSES BYTES ROUNDS      prints, per round, how many were granted, and the slowest answer in ns
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct shared {
    _Atomic int arrived[3], granted[4096], failed;
    _Atomic long long slowest[4096];
} * shared;
static int processes, rounds;
static size_t bytes;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* all meet; the counter only grows, so that no reset can race */
static void meet(int which, int round) {
    atomic_fetch_add(&shared->arrived[which], 1);
    while (atomic_load(&shared->arrived[which]) < processes * (round + 1) && !atomic_load(&shared->failed))
        sched_yield();
}

static int child(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!library)
        return 1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
    int (*alloc)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(library, "cuMemAlloc_v2");
    int (*release)(unsigned long long) = (int (*)(unsigned long long))dlsym(library, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || set(context))
        return 1;
    for (int round = 0; round < rounds; round++) {
        unsigned long long pointer = 0;
        meet(0, round);
        long long from = now();
        int r = alloc(&pointer, bytes);
        long long took = now() - from, slowest = atomic_load(&shared->slowest[round]);
        while (took > slowest && !atomic_compare_exchange_weak(&shared->slowest[round], &slowest, took)) {
        }
        if (r == 0)
            atomic_fetch_add(&shared->granted[round], 1);
        else if (r != 2)
            return 1;
        meet(1, round);
        if (r == 0 && release(pointer))
            return 1;
        meet(2, round);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4 || (rounds = atoi(argv[3])) > 4096)
        return 2;
    processes = atoi(argv[1]);
    bytes = strtoull(argv[2], NULL, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            int bad = child();
            if (bad)
                atomic_store(&shared->failed, 1);
            _exit(bad);
        }
    int status, bad = 0;
    while (wait(&status) > 0)
        bad |= status;
    for (int round = 0; round < rounds; round++)
        printf("%d %lld\n", atomic_load(&shared->granted[round]), atomic_load(&shared->slowest[round]));
    return bad ? 1 : 0;
}
