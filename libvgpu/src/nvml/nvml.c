#define _GNU_SOURCE
#include "nvml/nvml.h"
#include "core/glibc.h"
#include "core/place.h"
#include <dlfcn.h>
#include <string.h>

static struct gaia_nvml calls;
static _Atomic bool ready;

static gaia_nvml_result absent(void) { return GAIA_NVML_FUNCTION_NOT_FOUND; }

static void *find(void *library, const char *name) {
    void *function = library ? dlsym(library, name) : NULL;
    return function ? function : (void *)(size_t)absent;
}

/* Without a lock, for the reason given in cuda/driver.c: every thread stores the same pointers. */
const struct gaia_nvml *gaia_nvml(void) {
    if (__builtin_expect(atomic_load_explicit(&ready, memory_order_acquire), 1))
        return &calls;
    char path[GAIA_PATH];
    void *library = NULL;
    if (gaia_place_driver(path, sizeof path, "libnvidia-ml.so.1") == 0) {
        library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        if (!library)
            library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
#define X(name, parameters) __atomic_store_n((void **)&calls.name, find(library, #name), __ATOMIC_RELAXED);
    GAIA_NVML_HOOKED(X)
    GAIA_NVML_ASKED(X)
#undef X
    atomic_store_explicit(&ready, true, memory_order_release);
    return &calls;
}

/* State that a forked child sees zeroed, like the maps it does not inherit: no lock stays taken in it. */
enum { HANDLES = 64 };
struct state {
    gaia_lock lock;
    _Atomic(struct gaia_pages *) pages;
    /* UUIDs of the handles met so far; a handle never changes its card while NVML is loaded */
    gaia_lock knowing;
    unsigned count;
    gaia_nvml_device device[HANDLES];
    unsigned char uuid[HANDLES][16];
};
static _Atomic(struct state *) state;

static struct state *own_state(void) {
    struct state *here = atomic_load_explicit(&state, memory_order_acquire), *first = NULL;
    if (here)
        return here;
    here = gaia_prim_memory_wiped_on_fork(sizeof *here);
    if (here && !atomic_compare_exchange_strong_explicit(&state, &first, here, memory_order_acq_rel,
                                                         memory_order_acquire)) {
        gaia_prim_unmap(here, sizeof *here);
        here = first;
    }
    return here;
}

/* Asked anew on every call: NVML is never in anybody's hot path, and 2 us buy that a truncated page is
 * noticed. Old maps are left in place, another thread may be reading them. */
const struct gaia_pages *gaia_nvml_pages(void) {
    struct state *here = own_state();
    if (!here)
        return NULL;
    gaia_lock_take(&here->lock);
    struct gaia_pages *pages = atomic_load_explicit(&here->pages, memory_order_relaxed);
    if (pages && gaia_pages_ask(pages) != GAIA_PAGES_SAME)
        pages = NULL;
    if (!pages) {
        struct gaia_pages opened = {0};
        if (gaia_pages_open(&opened, false) && (pages = gaia_prim_memory(sizeof *pages)) != NULL)
            *pages = opened;
        atomic_store_explicit(&here->pages, pages, memory_order_release);
    }
    gaia_lock_drop(&here->lock);
    return pages;
}

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool gaia_uuid_parse(const char *text, unsigned char uuid[16]) {
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return false;
    text += 4;
    for (int i = 0; i < 16; i++) {
        while (*text == '-')
            text++;
        int high = hex(text[0]), low = high < 0 ? -1 : hex(text[1]);
        if (low < 0)
            return false;
        uuid[i] = (unsigned char)(high * 16 + low);
        text += 2;
    }
    return *text == 0;
}

static bool uuid_of(gaia_nvml_device device, unsigned char uuid[16]) {
    char text[GAIA_NVML_UUID];
    bool found = false;
    struct state *known = own_state();
    if (!known)
        return false;
    gaia_lock_take(&known->knowing);
    for (unsigned i = 0; i < known->count && !found; i++)
        if (known->device[i] == device) {
            memcpy(uuid, known->uuid[i], 16);
            found = true;
        }
    gaia_lock_drop(&known->knowing);
    if (found)
        return true;
    text[GAIA_NVML_UUID - 1] = 0;
    if (gaia_nvml()->nvmlDeviceGetUUID(device, text, sizeof text - 1) != GAIA_NVML_SUCCESS ||
        !gaia_uuid_parse(text, uuid))
        return false;
    gaia_lock_take(&known->knowing);
    if (known->count < HANDLES) { /* two threads may both add it: the second is never found, and harmless */
        known->device[known->count] = device;
        memcpy(known->uuid[known->count++], uuid, 16);
    }
    gaia_lock_drop(&known->knowing);
    return true;
}

int gaia_nvml_card(const struct gaia_pages *pages, gaia_nvml_device device) {
    unsigned char uuid[16];
    return pages && uuid_of(device, uuid) ? gaia_pages_card(pages->limits, uuid) : -1;
}

bool gaia_nvml_ours(const struct gaia_pages *pages, unsigned pid) {
    if (!pages || pid == 0)
        return false;
    uint64_t end = gaia_places(pages->usage, 0);
    for (uint64_t i = 0; i < end; i++)
        if (GAIA_OWNER_PID(gaia_read(&pages->usage->process[i].owner)) == pid)
            return true;
    return false;
}
