/* place_local.c - without mounts: SLOT/lib/ is where this library was loaded from, SLOT is above it.
 * Symbolic links are not resolved on purpose: SLOT/lib is a link to a directory that many slots share,
 * and only the name by which the loader found us tells which slot this process belongs to. */
#define _GNU_SOURCE
#include "core/glibc.h"
#include "core/place.h"
#include <dlfcn.h>
#include <string.h>

/* the directory of this library, with its final slash */
static int own_directory(char *path, size_t size) {
    Dl_info self;
    if (!dladdr((void *)(size_t)own_directory, &self) || !self.dli_fname)
        return -1;
    const char *slash = strrchr(self.dli_fname, '/');
    size_t length = slash ? (size_t)(slash - self.dli_fname) + 1 : 0;
    if (length == 0 || length >= size)
        return -1;
    memcpy(path, self.dli_fname, length);
    path[length] = 0;
    return 0;
}

int gaia_place_slot(char *path, size_t size) {
    char here[GAIA_PATH];
    if (own_directory(here, sizeof here) != 0)
        return -1;
    /* The parent by name, not "..": behind a link the kernel's ".." is the parent of the link's target. */
    size_t length = strlen(here) - 1;
    while (length > 0 && here[length - 1] == '/')
        length--;
    while (length > 0 && here[length - 1] != '/')
        length--;
    while (length > 1 && here[length - 1] == '/')
        length--;
    here[length] = 0;
    return length == 0 ? -1 : gaia_place_join(path, size, here, "");
}

int gaia_place_driver(char *path, size_t size, const char *name) {
    char here[GAIA_PATH];
    char folder[GAIA_PATH];
    if (own_directory(here, sizeof here) != 0 || gaia_place_join(folder, sizeof folder, here, "driver/") != 0)
        return -1;
    return gaia_place_join(path, size, folder, name);
}
