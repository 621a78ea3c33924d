/* trace.c - a line per look-up and unusual call, for people who extend the simulation. */
#define _GNU_SOURCE
#include "state.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int file = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
    const char *path = getenv("GAIA_SIM_TRACE");
    if (path && *path)
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void sim_trace(const char *format, ...) {
    char line[512];
    va_list values;
    pthread_once(&once, start);
    if (file < 0)
        return;
    va_start(values, format);
    int n = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    if (n > (int)sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    if (write(file, line, (size_t)n) < 0)
        return;
}
