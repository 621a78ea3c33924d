/* place_test.c - unit tests stand nowhere: no slot, no driver. */
#include "core/place.h"
#include <stdlib.h>

int gaia_place_slot(char *path, size_t size) {
    const char *slot = getenv("GAIA_TEST_SLOT");
    return slot ? gaia_place_join(path, size, slot, "") : -1;
}

int gaia_place_driver(char *path, size_t size, const char *name) { return -1; }
