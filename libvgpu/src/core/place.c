#include "core/place.h"
#include <string.h>

int gaia_place_join(char *path, size_t size, const char *a, const char *b) {
    size_t first = strlen(a), second = strlen(b);
    if (first + second + 1 > size)
        return -1;
    memcpy(path, a, first);
    memcpy(path + first, b, second + 1);
    return 0;
}
