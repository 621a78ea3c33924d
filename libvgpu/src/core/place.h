/* place.h - where this library's slot and the real driver are. The only thing in which the two builds
 * of a shadow (lib/local, lib/container) differ; see place_local.c and place_container.c. */
#ifndef GAIA_PLACE_H
#define GAIA_PLACE_H

#include <stddef.h>

#define GAIA_PATH 4096

/* The directory that holds `limits` and `usage`, without a final slash. 0, or -1 when it cannot be told. */
int gaia_place_slot(char *path, size_t size);

/* The real driver's file NAME ("libcuda.so.1"), exactly as the shadow's DT_NEEDED names it. 0 or -1. */
int gaia_place_driver(char *path, size_t size, const char *name);

/* "A" + "B" into PATH; -1 when it does not fit. */
int gaia_place_join(char *path, size_t size, const char *a, const char *b);

#endif
