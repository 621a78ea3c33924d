/* Making pages: written in full under another name, then renamed, so that nobody ever opens a half one. */
#include "gaia_pages.h"
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Real bytes, not a hole: a full disk must fail here and not kill a process that stores in a map. */
static int write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, bytes, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

static int create(const char *path, uint32_t mode, const void *bytes, size_t size) {
    size_t room = strlen(path) + 16;
    char *name = malloc(room);
    if (name == NULL)
        return -ENOMEM;
    snprintf(name, room, "%s.new", path);
    /* what a killed agent left; the state's lock says that there is no other agent */
    if (unlink(name) != 0 && errno != ENOENT) {
        int error = -errno;
        free(name);
        return error;
    }
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int result = fd < 0 ? -errno : write_all(fd, bytes, size);
    if (result == 0 && fchmod(fd, mode) != 0)
        result = -errno;
    if (fd >= 0 && close(fd) != 0 && result == 0)
        result = -errno;
    if (result == 0 && rename(name, path) != 0)
        result = -errno;
    if (result != 0 && fd >= 0)
        unlink(name);
    free(name);
    return result;
}

GAIA_PAGES_API int gaia_limits_create(const char *path, uint32_t mode) {
    struct gaia_limits *page = calloc(1, sizeof *page);
    if (page == NULL)
        return -ENOMEM;
    page->magic = GAIA_LIMITS_MAGIC;
    page->layout_version = GAIA_LAYOUT_VERSION;
    page->size = sizeof *page;
    int result = create(path, mode, page, sizeof *page);
    free(page);
    return result;
}

GAIA_PAGES_API int gaia_usage_create(const char *path, uint32_t mode) {
    struct gaia_usage *page = calloc(1, sizeof *page);
    if (page == NULL)
        return -ENOMEM;
    page->magic = GAIA_USAGE_MAGIC;
    page->layout_version = GAIA_LAYOUT_VERSION;
    page->size = sizeof *page;
    int result = create(path, mode, page, sizeof *page);
    free(page);
    return result;
}
