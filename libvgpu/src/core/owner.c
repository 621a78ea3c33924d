#include "core/owner.h"
#include "core/place.h"
#include "core/prim.h"
#include <string.h>

static const char *number(const char *text, uint64_t *value) {
    *value = 0;
    while (*text == ' ' || *text == '-')
        text++;
    while (*text >= '0' && *text <= '9')
        *value = *value * 10 + (uint64_t)(*text++ - '0');
    return text;
}

bool gaia_stat_parse(const char *text, uint64_t *start, char *state, uint64_t *threads) {
    /* Field 2 is the program's name in brackets and may itself hold blanks and brackets: what is
     * counted begins after the last one. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == 0)
        return false;
    *state = at[2];
    at += 3;
    for (int field = 4; field <= 22; field++) {
        uint64_t value;
        if (*at != ' ')
            return false;
        at = number(at, &value);
        if (field == 20)
            *threads = value;
        if (field == 22)
            *start = value;
    }
    return true;
}

/* "/proc/PID/stat" without printf, which would pull in more of libc than this file is worth. */
static void stat_path(char *path, uint32_t pid) {
    char digits[12];
    int n = 0;
    do
        digits[n++] = (char)('0' + pid % 10);
    while ((pid /= 10) != 0);
    memcpy(path, "/proc/", 6);
    path += 6;
    while (n > 0)
        *path++ = digits[--n];
    memcpy(path, "/stat", 6);
}

static bool read_stat(uint32_t pid, uint64_t *start, char *state, uint64_t *threads, bool *missing) {
    char path[32], text[1024];
    stat_path(path, pid);
    if (gaia_prim_read(path, text, sizeof text, missing) <= 0)
        return false;
    return gaia_stat_parse(text, start, state, threads);
}

void gaia_identity_read(struct gaia_identity *self) {
    uint32_t pid = gaia_prim_pid();
    uint64_t start, threads;
    char state, link[64];
    bool missing;
    self->owner = read_stat(pid, &start, &state, &threads, &missing) ? GAIA_OWNER(pid, start) : 0;
    self->image = gaia_prim_image();
    self->name_space = 1;
    if (gaia_prim_link("/proc/self/ns/pid", link, sizeof link) > 0) { /* "pid:[4026531836]" */
        const char *open = strchr(link, '[');
        if (open)
            number(open + 1, &self->name_space);
    }
}

bool gaia_owner_dead(uint64_t owner) {
    uint32_t pid = GAIA_OWNER_PID(owner);
    uint64_t start, threads = 0;
    char state;
    bool missing;
    if (pid == 0 || gaia_prim_gone(pid))
        return true;
    if (!read_stat(pid, &start, &state, &threads, &missing))
        return missing && gaia_prim_gone(pid); /* ended while we looked; hidden ones are alive */
    if ((start & ((UINT64_C(1) << 42) - 1)) != GAIA_OWNER_START(owner))
        return true;
    return (state == 'Z' || state == 'X') && threads <= 1;
}
