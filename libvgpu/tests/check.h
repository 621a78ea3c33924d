/* check.h - an assert that stays in release builds and names the place. */
#ifndef GAIA_CHECK_H
#define GAIA_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(x)                                                                                             \
    do                                                                                                       \
        if (!(x)) {                                                                                          \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                                          \
            exit(1);                                                                                         \
        }                                                                                                    \
    while (0)

#endif
