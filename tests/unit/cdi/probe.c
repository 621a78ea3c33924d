/* probe.c - a program in a container: it asks for the driver by the names it is given, takes memory, and
 * tries what it may not do. One line per answer. It links nothing, as a program with its own runtime. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int (*call)(unsigned long long, unsigned long long, unsigned long long);
#define P(x) ((unsigned long long)(size_t)(x))

static void *driver;

static int cu(const char *name, unsigned long long a, unsigned long long b, unsigned long long c) {
    call function = (call)dlsym(driver, name);
    return function ? function(a, b, c) : -1;
}

/* NAME or NAME@DEVICE: start, and tell how much there is */
static int start(char *name) {
    char *at = strchr(name, '@');
    int device = at ? atoi(at + 1) : 0;
    if (at)
        *at = 0;
    unsigned long long context = 0;
    size_t free_bytes = 0, total = 0;
    int devices = 0;
    driver = dlopen(name, RTLD_NOW);
    if (!driver) {
        printf("missing %s\n", dlerror());
        return 1;
    }
    printf("init %d\n", cu("cuInit", 0, 0, 0));
    printf("count %d", cu("cuDeviceGetCount", P(&devices), 0, 0));
    printf(" %d\n", devices);
    printf("context %d\n", cu("cuDevicePrimaryCtxRetain", P(&context), (unsigned)device, 0));
    cu("cuCtxSetCurrent", context, 0, 0);
    printf("info %d", cu("cuMemGetInfo_v2", P(&free_bytes), P(&total), 0));
    printf(" %zu\n", total);
    return 0;
}

/* take NAME BYTES...: each amount alone */
static int take(char **words) {
    if (start(words[0]))
        return 1;
    for (words++; *words; words++) {
        unsigned long long memory = 0;
        int result = cu("cuMemAlloc_v2", P(&memory), strtoull(*words, NULL, 10), 0);
        printf("alloc %d\n", result);
        if (result == 0)
            cu("cuMemFree_v2", memory, 0, 0);
    }
    return 0;
}

/* hold NAME BYTES: until the input ends */
static int hold(char **words) {
    unsigned long long memory = 0;
    char byte;
    if (start(words[0]))
        return 1;
    printf("alloc %d\n", cu("cuMemAlloc_v2", P(&memory), strtoull(words[1], NULL, 10), 0));
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}

static const char *outcome(int result) { return result >= 0 ? "yes" : strerror(errno); }

/* open PATH...: may it be written? */
static int open_for_writing(char **words) {
    for (; *words; words++)
        printf("%s %s\n", *words, outcome(open(*words, O_WRONLY)));
    return 0;
}

/* change PATH...: may the name be removed, made, or the contents be cut? */
static int change(char **words) {
    for (; *words; words++)
        printf("%s %s\n", *words, outcome(unlink(*words)));
    return 0;
}

/* grow PATH: as far as it goes; cut PATH BYTES */
static int grow(char **words) {
    static char block[65536];
    int file = open(words[0], O_WRONLY | O_APPEND);
    long long size = 0;
    while (file >= 0 && write(file, block, sizeof block) > 0 && size < (1LL << 26))
        size += (long long)sizeof block;
    struct stat st;
    printf("grown %lld %s\n", fstat(file, &st) == 0 ? (long long)st.st_blocks * 512 : -1, strerror(errno));
    return 0;
}

static int cut(char **words) {
    printf("cut %s\n", outcome(truncate(words[0], atoll(words[1]))));
    return 0;
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        int (*run)(char **);
    } verbs[] = {{"take", take},     {"hold", hold}, {"open", open_for_writing},
                 {"change", change}, {"grow", grow}, {"cut", cut}};
    for (size_t i = 0; count > 2 && i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(words[1], verbs[i].name) == 0)
            return verbs[i].run(words + 2);
    return 2;
}
