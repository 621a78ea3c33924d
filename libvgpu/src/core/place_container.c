/* place_container.c - in a container everything stands at fixed paths that the CDI spec mounts. */
#include "core/place.h"

int gaia_place_slot(char *path, size_t size) { return gaia_place_join(path, size, "/run/gaia", ""); }

int gaia_place_driver(char *path, size_t size, const char *name) {
    return gaia_place_join(path, size, "/run/gaia/driver/", name);
}
