/* client.c - a CUDA program that does what its standard input says, one call per line, and answers each
 * with one line: the call's result and what it handed out. Reaches the driver as a runtime does: dlopen,
 * then dlsym of exported names. K is a number under which a pointer or handle is kept.
 *
 *   init | devices | device K ORDINAL-UUID? ... see the table at the end
 */
#define _GNU_SOURCE
#include "gaia_cuda_abi.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library, *nvml;
static unsigned long long kept[256];
static char **arguments;

typedef int (*call0)(void);
typedef int (*call)(unsigned long long, unsigned long long, unsigned long long, unsigned long long,
                    unsigned long long, unsigned long long);

/* All arguments travel in integer registers, so one type fits every call made here. */
static call cu(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        printf("missing %s\n", name);
        exit(3);
    }
    return (call)function;
}
static call ml(const char *name) { return (call)dlsym(nvml, name); }
#define P(x) ((unsigned long long)(uintptr_t)(x))
#define N(i) strtoull(a[i], NULL, 0)
#define KEPT(i) kept[N(i) % 256]

static void say(int result, const char *more) {
    printf("%d%s%s\n", result, *more ? " " : "", more);
    fflush(stdout);
}

static int do_init(char **a) { return cu("cuInit")(0, 0, 0, 0, 0, 0); }
static int do_retain(char **a) { return cu("cuDevicePrimaryCtxRetain")(P(&KEPT(2)), N(1), 0, 0, 0, 0); }
static int do_release(char **a) { return cu("cuDevicePrimaryCtxRelease_v2")(N(1), 0, 0, 0, 0, 0); }
static int do_reset(char **a) { return cu("cuDevicePrimaryCtxReset_v2")(N(1), 0, 0, 0, 0, 0); }
static int do_set(char **a) { return cu("cuCtxSetCurrent")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_create(char **a) { /* create VERSION DEVICE K */
    switch (N(1)) {
    case 1:
        return cu("cuCtxCreate")(P(&KEPT(3)), 0, N(2), 0, 0, 0);
    case 2:
        return cu("cuCtxCreate_v2")(P(&KEPT(3)), 0, N(2), 0, 0, 0);
    case 3:
        return cu("cuCtxCreate_v3")(P(&KEPT(3)), 0, 0, 0, N(2), 0);
    default:
        return cu("cuCtxCreate_v4")(P(&KEPT(3)), 0, 0, N(2), 0, 0);
    }
}
static int do_destroy(char **a) { return cu("cuCtxDestroy_v2")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_alloc(char **a) { return cu("cuMemAlloc_v2")(P(&KEPT(1)), N(2), 0, 0, 0, 0); }
static int do_managed(char **a) { return cu("cuMemAllocManaged")(P(&KEPT(1)), N(2), 1, 0, 0, 0); }
static int do_pitch(char **a) {
    size_t pitch = 0;
    return cu("cuMemAllocPitch_v2")(P(&KEPT(1)), P(&pitch), N(2), N(3), 16, 0);
}
static int do_free(char **a) { return cu("cuMemFree_v2")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_async(char **a) { return cu("cuMemAllocAsync")(P(&KEPT(1)), N(2), 0, 0, 0, 0); }
static int do_async_thread(char **a) { return cu("cuMemAllocAsync_ptsz")(P(&KEPT(1)), N(2), 0, 0, 0, 0); }
static int do_free_async(char **a) { return cu("cuMemFreeAsync")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_sync(char **a) { return cu("cuCtxSynchronize")(0, 0, 0, 0, 0, 0); }
static int do_make_pool(char **a) { /* pool K DEVICE LOCATION-TYPE */
    gaia_cu_pool_props props = {.type = 1, .location = {(int)N(3), (int)N(2)}};
    return cu("cuMemPoolCreate")(P(&KEPT(1)), P(&props), 0, 0, 0, 0);
}
static int do_from_pool(char **a) {
    return cu("cuMemAllocFromPoolAsync")(P(&KEPT(1)), N(2), KEPT(3), 0, 0, 0);
}
static int do_trim(char **a) { return cu("cuMemPoolTrimTo")(KEPT(1), N(2), 0, 0, 0, 0); }
static int do_end_pool(char **a) { return cu("cuMemPoolDestroy")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_default_pool(char **a) {
    return cu("cuDeviceGetDefaultMemPool")(P(&KEPT(1)), N(2), 0, 0, 0, 0);
}
static int do_keep_all(char **a) { /* release threshold of a pool */
    uint64_t all = UINT64_MAX;
    return cu("cuMemPoolSetAttribute")(KEPT(1), 4, P(&all), 0, 0, 0);
}
static int do_vcreate(char **a) { /* vcreate K BYTES DEVICE LOCATION-TYPE */
    gaia_cu_allocation_prop prop = {.type = 1, .location = {(int)N(4), (int)N(3)}};
    return cu("cuMemCreate")(P(&KEPT(1)), N(2), P(&prop), 0, 0, 0);
}
static int do_vreserve(char **a) { return cu("cuMemAddressReserve")(P(&KEPT(1)), N(2), 0, 0, 0, 0); }
static int do_vmap(char **a) { return cu("cuMemMap")(KEPT(1) + N(2), N(3), 0, KEPT(4), 0, 0); }
static int do_vunmap(char **a) { return cu("cuMemUnmap")(KEPT(1) + N(2), N(3), 0, 0, 0, 0); }
static int do_vrelease(char **a) { return cu("cuMemRelease")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_vretain(char **a) { /* vretain K ADDRESS-K OFFSET */
    return cu("cuMemRetainAllocationHandle")(P(&KEPT(1)), KEPT(2) + N(3), 0, 0, 0, 0);
}
static int do_array(char **a) { /* array K WIDTH HEIGHT FORMAT CHANNELS */
    gaia_cu_array2d shape = {N(2), N(3), (int)N(4), (unsigned)N(5)};
    return cu("cuArrayCreate_v2")(P(&KEPT(1)), P(&shape), 0, 0, 0, 0);
}
static int do_array3d(char **a) {
    gaia_cu_array3d shape = {N(2), N(3), N(4), 0x20, 1, 0};
    return cu("cuArray3DCreate_v2")(P(&KEPT(1)), P(&shape), 0, 0, 0, 0);
}
static int do_mipmap(char **a) {
    gaia_cu_array3d shape = {N(2), N(3), 0, 0x20, 1, 0};
    return cu("cuMipmappedArrayCreate")(P(&KEPT(1)), P(&shape), 3, 0, 0, 0);
}
static int do_end_mipmap(char **a) { return cu("cuMipmappedArrayDestroy")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_end_array(char **a) { return cu("cuArrayDestroy")(KEPT(1), 0, 0, 0, 0, 0); }
static int do_stream(char **a) { return cu("cuStreamCreate")(P(&KEPT(1)), 1, 0, 0, 0, 0); }
static int do_capture(char **a) { return cu("cuStreamBeginCapture_v2")(KEPT(1), 2, 0, 0, 0, 0); }
static int do_end_capture(char **a) { return cu("cuStreamEndCapture")(KEPT(1), P(&KEPT(2)), 0, 0, 0, 0); }
static int do_async_on(char **a) { return cu("cuMemAllocAsync")(P(&KEPT(1)), N(2), KEPT(3), 0, 0, 0); }
static int do_touch(char **a) { return cu("cuMemsetD8_v2")(KEPT(1), 7, N(2), 0, 0, 0); }

static int do_info(char **a) {
    size_t free = 111, total = 111;
    char text[64];
    int r = cu("cuMemGetInfo_v2")(P(&free), P(&total), 0, 0, 0, 0);
    snprintf(text, sizeof text, "%zu %zu", free, total);
    say(r, text);
    return -1;
}
static int do_total(char **a) {
    size_t total = 111;
    char text[64];
    int r = cu("cuDeviceTotalMem_v2")(P(&total), N(1), 0, 0, 0, 0);
    snprintf(text, sizeof text, "%zu", total);
    say(r, text);
    return -1;
}
static int do_devices(char **a) {
    int count = 0;
    char text[32];
    int r = cu("cuDeviceGetCount")(P(&count), 0, 0, 0, 0, 0);
    snprintf(text, sizeof text, "%d", count);
    say(r, text);
    return -1;
}
static int do_uuid(char **a) {
    gaia_cu_uuid uuid;
    char text[64] = "GPU-";
    int r = cu("cuDeviceGetUuid_v2")(P(&uuid), N(1), 0, 0, 0, 0), at = 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            text[at++] = '-';
        at += sprintf(text + at, "%02x", uuid.bytes[i]);
    }
    say(r, text);
    return -1;
}

/* lookup API NAME VERSION FLAGS: status, and the library and name of what was found */
static int do_lookup(char **a) {
    void *found = (void *)1, *self = NULL;
    int status = -1, version = (int)N(3), r;
    if (strcmp(a[1], "v1") == 0) {
        if (cu("cuGetProcAddress")(P("cuGetProcAddress"), P(&self), 11030, 0, 0, 0) != 0)
            self = NULL;
        r = self ? ((call)self)(P(a[2]), P(&found), (unsigned)version, N(4), 0, 0) : 999;
    } else {
        if (cu("cuGetProcAddress_v2")(P("cuGetProcAddress"), P(&self), 12000, 0, P(&status), 0) != 0)
            self = NULL;
        status = -1;
        r = self ? ((call)self)(P(a[2]), P(&found), (unsigned)version, N(4), P(&status), 0) : 999;
    }
    Dl_info where = {0};
    char text[256] = "none none";
    if (r == 0 && found && dladdr(found, &where) && where.dli_fname) {
        const char *driver = strstr(where.dli_fname, "/driver/");
        snprintf(text, sizeof text, "%s %s", driver ? "driver" : "shadow",
                 where.dli_sname ? where.dli_sname : "?");
    }
    char all[300];
    snprintf(all, sizeof all, "%d %s", status, text);
    say(r, all);
    if (a[5]) /* keep it, to be called with the arguments of cuMemAlloc */
        KEPT(5) = P(found);
    return -1;
}
static int do_call_alloc(char **a) { return ((call)(uintptr_t)KEPT(1))(P(&KEPT(2)), N(3), 0, 0, 0, 0); }

/* nvml V1|V2 UUID */
static int do_nvml(char **a) {
    struct {
        unsigned long long total, free, used;
    } one;
    struct {
        unsigned version;
        unsigned long long total, reserved, free, used;
    } two = {.version = 40 | 2 << 24};
    void *device = NULL;
    char text[128];
    if (!nvml)
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml || ml("nvmlInit_v2")(0, 0, 0, 0, 0, 0) != 0)
        return 998;
    int r = ml("nvmlDeviceGetHandleByUUID")(P(a[2]), P(&device), 0, 0, 0, 0);
    if (r)
        return r;
    if (strcmp(a[1], "v1") == 0) {
        r = ml("nvmlDeviceGetMemoryInfo")(P(device), P(&one), 0, 0, 0, 0);
        snprintf(text, sizeof text, "%llu %llu %llu", one.total, one.free, one.used);
    } else {
        if (strcmp(a[1], "bad") == 0)
            two.version = 7;
        r = ml("nvmlDeviceGetMemoryInfo_v2")(P(device), P(&two), 0, 0, 0, 0);
        snprintf(text, sizeof text, "%llu %llu %llu %llu", two.total, two.free, two.used, two.reserved);
    }
    say(r, text);
    return -1;
}

/* pids UUID SUFFIX RECORD-SIZE: pids that NVML lists */
static int do_pids(char **a) {
    static char list[64 * 1024];
    char name[64], text[4096] = "";
    unsigned count = 0;
    void *device = NULL;
    if (!nvml)
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!nvml || ml("nvmlInit_v2")(0, 0, 0, 0, 0, 0) != 0 ||
        ml("nvmlDeviceGetHandleByUUID")(P(a[1]), P(&device), 0, 0, 0, 0))
        return 998;
    snprintf(name, sizeof name, "nvmlDeviceGetComputeRunningProcesses%s", strcmp(a[2], "-") ? a[2] : "");
    int asked = ml(name)(P(device), P(&count), 0, 0, 0, 0);
    int length = snprintf(text, sizeof text, "%d %u", asked, count);
    count = 1024;
    int r = ml(name)(P(device), P(&count), P(list), 0, 0, 0);
    for (unsigned i = 0; r == 0 && i < count; i++)
        length +=
            snprintf(text + length, sizeof text - (size_t)length, " %u", *(unsigned *)(list + i * N(3)));
    say(r, text);
    return -1;
}

static void *alloc_many(void *argument) {
    unsigned long long *task = argument; /* bytes each, how many, context, granted */
    cu("cuCtxSetCurrent")(task[2], 0, 0, 0, 0, 0);
    for (unsigned long long i = 0; i < task[1]; i++) {
        unsigned long long pointer;
        task[3] += cu("cuMemAlloc_v2")(P(&pointer), task[0], 0, 0, 0, 0) == 0;
    }
    return NULL;
}

/* threads COUNT EACH BYTES CONTEXT-K: how many of COUNT x EACH allocations were granted */
static int do_threads(char **a) {
    pthread_t thread[64];
    unsigned long long task[64][4], granted = 0;
    char text[32];
    for (unsigned i = 0; i < N(1); i++) {
        memcpy(task[i], (unsigned long long[4]){N(3), N(2), KEPT(4), 0}, sizeof task[i]);
        pthread_create(&thread[i], NULL, alloc_many, task[i]);
    }
    for (unsigned i = 0; i < N(1); i++) {
        pthread_join(thread[i], NULL);
        granted += task[i][3];
    }
    snprintf(text, sizeof text, "%llu", granted);
    say(0, text);
    return -1;
}

static int run(char *line);

/* fork LINE[;LINE...]: a child runs the lines, its answers are ours; "0" when it has ended well */
static int do_fork(char **a) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *rest = strdup(a[1]), *line;
        while ((line = strsep(&rest, ";")) != NULL)
            run(line);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 900 + WTERMSIG(status);
}

static int do_exec(char **a) { /* this very program anew, in this very process */
    fflush(stdout);
    execv("/proc/self/exe", arguments);
    return 997;
}
static int do_open(char **a) {
    library = dlopen(a[1] ? a[1] : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return library ? 0 : 996;
}
static int do_again(char **a) { /* a second copy of the whole driver, in a namespace of its own */
    library = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    return library ? 0 : 996;
}
static int do_pid(char **a) {
    char text[32];
    snprintf(text, sizeof text, "%d", (int)getpid());
    say(0, text);
    return -1;
}
static int do_maps(char **a) { /* maps NAME: how many times a file of that name is mapped */
    char line[4096], text[32];
    FILE *f = fopen("/proc/self/maps", "r");
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, a[1]) != NULL;
    if (f)
        fclose(f);
    snprintf(text, sizeof text, "%d", n);
    say(0, text);
    return -1;
}

/* launch COUNT STREAM-K|-: that many kernels of 64 blocks; the first failure ends it */
static int do_launch(char **a) {
    typedef int (*eleven)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned long long, void **, void **);
    eleven launch = (eleven)(void *)cu("cuLaunchKernel");
    unsigned long long stream = a[2] && *a[2] != '-' ? KEPT(2) : 0;
    int r = 0;
    for (unsigned long long i = 0; r == 0 && i < N(1); i++)
        r = launch(NULL, 64, 1, 1, 64, 1, 1, 0, stream, NULL, NULL);
    return r;
}
static int do_end_stream(char **a) { return cu("cuStreamDestroy_v2")(KEPT(1), 0, 0, 0, 0, 0); }

static const struct {
    const char *name;
    int (*run)(char **);
} verbs[] = {{"open", do_open},
             {"again", do_again},
             {"init", do_init},
             {"pid", do_pid},
             {"maps", do_maps},
             {"devices", do_devices},
             {"uuid", do_uuid},
             {"retain", do_retain},
             {"release", do_release},
             {"reset", do_reset},
             {"set", do_set},
             {"create", do_create},
             {"destroy", do_destroy},
             {"alloc", do_alloc},
             {"managed", do_managed},
             {"pitch", do_pitch},
             {"free", do_free},
             {"async", do_async},
             {"async_thread", do_async_thread},
             {"async_on", do_async_on},
             {"free_async", do_free_async},
             {"sync", do_sync},
             {"pool", do_make_pool},
             {"from_pool", do_from_pool},
             {"trim", do_trim},
             {"end_pool", do_end_pool},
             {"default_pool", do_default_pool},
             {"keep_all", do_keep_all},
             {"vcreate", do_vcreate},
             {"vreserve", do_vreserve},
             {"vmap", do_vmap},
             {"vunmap", do_vunmap},
             {"vrelease", do_vrelease},
             {"vretain", do_vretain},
             {"array", do_array},
             {"array3d", do_array3d},
             {"mipmap", do_mipmap},
             {"end_mipmap", do_end_mipmap},
             {"end_array", do_end_array},
             {"stream", do_stream},
             {"capture", do_capture},
             {"end_capture", do_end_capture},
             {"touch", do_touch},
             {"launch", do_launch},
             {"end_stream", do_end_stream},
             {"info", do_info},
             {"total", do_total},
             {"lookup", do_lookup},
             {"call_alloc", do_call_alloc},
             {"nvml", do_nvml},
             {"pids", do_pids},
             {"threads", do_threads},
             {"exec", do_exec}};

static int run(char *line) {
    char *a[8] = {0};
    int n = 0;
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, "fork ", 5) == 0) {
        char *arguments_of_fork[2] = {"fork", line + 5};
        say(do_fork(arguments_of_fork), "");
        return 0;
    }
    for (char *word = strtok(line, " "); word && n < 7; word = strtok(NULL, " "))
        a[n++] = word;
    if (!library && n && strcmp(a[0], "open") && strcmp(a[0], "again") && strcmp(a[0], "pid") &&
        strcmp(a[0], "maps") && strcmp(a[0], "nvml") && strcmp(a[0], "exec"))
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (unsigned i = 0; n && i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(a[0], verbs[i].name) == 0) {
            int r = verbs[i].run(a);
            if (r != -1)
                say(r, "");
            return 0;
        }
    say(995, "no such verb");
    return 1;
}

/* Unbuffered reading, or an exec would lose the lines that were read ahead. */
static int read_line(char *line, int size) {
    int n = 0;
    char c;
    while (read(0, &c, 1) == 1) {
        if (c == '\n') {
            line[n] = 0;
            return 1;
        }
        if (n < size - 1)
            line[n++] = c;
    }
    return 0;
}

int main(int argc, char **argv) {
    char line[4096];
    arguments = argv;
    while (read_line(line, sizeof line))
        run(line);
    return 0;
}
