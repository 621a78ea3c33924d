/* A libnvidia-ml.so.1 with habits to order: the tests set the variables below
 * by name. -DOLD leaves out what drivers before 450 lack; -DINIT=n makes
 * nvmlInit answer n. */
#include <stdio.h>
#include <string.h>

#ifndef INIT
#define INIT 0
#endif
typedef int R;
typedef struct {
    int index;
} * D;
enum { CARDS = 4, INVALID = 2, NOT_SUPPORTED = 3, SMALL = 7, LOST = 15 };

/* what the tests set */
int fake_lost = -1; /* this card answers nothing but its UUID */
int fake_gone = -1; /* this card cannot even be reached by its index */
int fake_mig = -1;  /* this card is cut by MIG */
int fake_levels[CARDS][CARDS];
int fake_remote[CARDS][8]; /* per link: a card's number, -1 none, 99 a switch */
int fake_p2p = 0;          /* status of NVLink peer access */
int fake_numa[CARDS];
unsigned long long fake_used[CARDS] = {5, 6, 7, 8};
int fake_processes = 0;  /* 1000, 1001, ... with 1, 2, ... MiB */
int fake_no_figure = -1; /* the process that has no figure */
int fake_mps = 0;
int fake_list_error = 0;
int fake_uses = 0; /* samples of 1000, 1001, ... at 1 s, 2 s, ... with 10, 20, ... % */
int fake_use_error = 0;

static struct { int index; } devices[CARDS] = {{0}, {1}, {2}, {3}};
static int lost(D d) { return d->index == fake_lost; }

__attribute__((constructor)) static void start(void) {
    memset(fake_remote, 0xff, sizeof fake_remote);
    for (int i = 0; i < CARDS; i++) {
        fake_numa[i] = i / 2;
        for (int j = 0; j < CARDS; j++)
            fake_levels[i][j] = 50;
    }
}

R nvmlInitWithFlags(unsigned f) {
    (void)f;
    return INIT;
}
R nvmlShutdown(void) { return 0; }
R nvmlDeviceGetCount_v2(unsigned *n) {
    *n = CARDS;
    return 0;
}
R nvmlDeviceGetHandleByIndex_v2(unsigned i, D *d) {
    *d = (D)&devices[i];
    return (int)i == fake_gone ? LOST : 0;
}
R nvmlDeviceGetUUID(D d, char *s, unsigned n) {
    snprintf(s, n, "GPU-%d", d->index);
    return 0;
}
R nvmlDeviceGetName(D d, char *s, unsigned n) {
    snprintf(s, n, "Fake %d", d->index);
    return lost(d) ? LOST : 0;
}

R nvmlDeviceGetMemoryInfo(D d, unsigned long long *m) {
    m[0] = 24ull << 30, m[2] = fake_used[d->index], m[1] = m[0] - m[2];
    return lost(d) ? LOST : 0;
}

static R list(D d, unsigned *n, void *out, size_t stride, int many, int first) {
    unsigned room = *n;
    (void)d;
    if (fake_list_error)
        return fake_list_error;
    *n = (unsigned)many;
    if (room < (unsigned)many)
        return SMALL;
    for (int i = 0; i < many; i++) {
        struct {
            unsigned pid;
            unsigned long long used;
        } *one = (void *)((char *)out + (size_t)i * stride);
        one->pid = (unsigned)(first + i);
        one->used = first + i == fake_no_figure ? ~0ull : (unsigned long long)(i + 1) << 20;
    }
    return 0;
}

#ifdef OLD
R nvmlDeviceGetComputeRunningProcesses(D d, unsigned *n, void *o) {
    return list(d, n, o, 16, fake_processes, 1000);
}
#else
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, sub;
    char bus_id[32];
};
static void bus(struct pci *p, int card) {
    memset(p, 0, sizeof *p);
    snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", 0xA0 + card);
}

struct memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
R nvmlDeviceGetMemoryInfo_v2(D d, struct memory2 *m) {
    if (m->version != 0x02000028)
        return 25;
    m->total = 24ull << 30, m->reserved = 512ull << 20, m->used = fake_used[d->index];
    return lost(d) ? LOST : 0;
}
R nvmlDeviceGetPciInfo_v3(D d, struct pci *p) {
    bus(p, d->index);
    return 0;
}
R nvmlDeviceGetComputeRunningProcesses_v3(D d, unsigned *n, void *o) {
    return list(d, n, o, 24, fake_processes, 1000);
}
struct use {
    unsigned pid;
    unsigned long long at;
    unsigned sm, memory, encoder, decoder;
};
R nvmlDeviceGetProcessUtilization(D d, struct use *out, unsigned *n, unsigned long long since) {
    unsigned room = *n, found = 0;
    if (lost(d))
        return LOST;
    if (fake_use_error)
        return fake_use_error;
    for (int i = 0; i < fake_uses; i++) {
        unsigned long long at = (unsigned long long)(i + 1) * 1000000;
        if (at <= since)
            continue;
        if (found < room)
            out[found] = (struct use){(unsigned)(1000 + i), at, (unsigned)(10 * (i + 1)), 1, 0, 0};
        found++;
    }
    *n = found;
    return found == 0 ? 6 : found > room ? SMALL : 0;
}
R nvmlDeviceGetMPSComputeRunningProcesses_v3(D d, unsigned *n, void *o) {
    return list(d, n, o, 24, fake_mps, 1001);
}
R nvmlDeviceGetMigMode(D d, unsigned *now, unsigned *next) {
    *now = *next = d->index == fake_mig;
    return fake_mig < 0 ? NOT_SUPPORTED : 0;
}
R nvmlDeviceGetMemoryAffinity(D d, unsigned n, unsigned long *set, unsigned scope) {
    memset(set, 0, n * sizeof *set);
    if (fake_numa[d->index] >= 0)
        set[fake_numa[d->index] / 64] = 1ul << fake_numa[d->index] % 64;
    return scope ? INVALID : 0;
}
R nvmlDeviceGetTopologyCommonAncestor(D a, D b, int *level) {
    *level = fake_levels[a->index][b->index];
    return 0;
}
R nvmlDeviceGetNvLinkState(D d, unsigned link, unsigned *active) {
    if (link >= 8)
        return INVALID;
    *active = fake_remote[d->index][link] >= 0;
    return 0;
}
R nvmlDeviceGetNvLinkRemotePciInfo_v2(D d, unsigned link, struct pci *p) {
    bus(p, fake_remote[d->index][link]);
    return 0;
}
R nvmlDeviceGetP2PStatus(D a, D b, int what, int *status) {
    (void)a, (void)b;
    *status = what == 2 ? fake_p2p : 6;
    return 0;
}
#endif
