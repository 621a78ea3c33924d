/* lookup.c - cuGetProcAddress, both versions. Most runtimes reach the whole driver through it, and
 * through the pointer it gives for itself, so it answers with our hooks wherever there is one.
 *
 * The real driver is asked first and decides whether there is an answer at all; then its pointer is
 * replaced by table (base name, version, per-thread flag), so that the caller gets the interface of the
 * very version it asked for. */
#include "cuda/hook.h"
#include <string.h>

struct row {
    const char *base;
    int version, per_thread;
    void *hook; /* NULL: left to the driver on purpose */
};

#define S(base, version, per_thread, name) {#base, version, per_thread, (void *)name},
#define PASS(base, version, per_thread, name, why) {#base, version, per_thread, NULL},
static const struct row rows[] = {
#include "hooks.def"
};
#undef S
#undef PASS
enum { ROWS = sizeof rows / sizeof rows[0] };

/* The newest CUDA whose every variant of our base names is in the table. */
enum { TABLE_VERSION = 13050 };

/* The driver's own rule: the newest variant not newer than VERSION, a per-thread one first if wanted. */
static const struct row *find_row(const char *base, int version, bool per_thread) {
    const struct row *best = NULL;
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->base, base) != 0 || row->version > version || (row->per_thread && !per_thread))
            continue;
        if (!best || (row->per_thread != best->per_thread ? row->per_thread : row->version > best->version))
            best = row;
    }
    return best;
}

static int ask(const struct gaia_driver *driver, const char *symbol, void **function, int version,
               uint64_t flags) {
    return driver->cuGetProcAddress(symbol, function, version, flags);
}

/* A variant that came after our table would allocate uncounted: refused, as if the caller's version were
 * too low for it. Told by comparing with what the driver gives for the newest version we know. */
static bool too_new(const struct gaia_driver *driver, const char *symbol, void *given, int version,
                    uint64_t flags) {
    void *known = NULL;
    return version > TABLE_VERSION &&
           (ask(driver, symbol, &known, TABLE_VERSION, flags) != GAIA_CU_SUCCESS || known != given);
}

enum found { DRIVERS, OURS, REFUSED };

static enum found replace(const struct gaia_driver *driver, const char *symbol, void **function, int version,
                          uint64_t flags) {
    const struct row *row = find_row(symbol, version, (flags & GAIA_CU_PER_THREAD_STREAM) != 0);
    if (!row)
        return DRIVERS;
    if (too_new(driver, symbol, *function, version, flags)) {
        *function = NULL;
        return REFUSED;
    }
    if (!row->hook)
        return DRIVERS;
    *function = row->hook;
    return OURS;
}

GAIA_EXPORT gaia_cu_result cuGetProcAddress(const char *symbol, void **function, int version,
                                            uint64_t flags) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuGetProcAddress(symbol, function, version, flags);
    if (error != GAIA_CU_SUCCESS || !symbol || !function || !*function)
        return error;
    return replace(driver, symbol, function, version, flags) == REFUSED ? GAIA_CU_NOT_FOUND : error;
}

GAIA_EXPORT gaia_cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                               uint64_t flags, int *status) {
    const struct gaia_driver *driver = gaia_driver();
    int error = driver->cuGetProcAddress_v2(symbol, function, version, flags, status);
    if (error != GAIA_CU_SUCCESS || !symbol || !function || !*function)
        return error;
    if (replace(driver, symbol, function, version, flags) == REFUSED && status)
        *status = GAIA_CU_SYMBOL_VERSION;
    return error;
}
