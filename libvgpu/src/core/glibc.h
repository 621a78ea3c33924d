/* glibc.h - binds to the oldest versions of what we need of glibc, so that a library built on a new
 * system loads on an old one. glibc 2.34 moved dlopen, pthread_create and their families into libc with
 * a new version number; the old number is still answered by every glibc (from libdl and libpthread before
 * 2.34, and a real driver has both loaded). Include before <dlfcn.h> is used; one place, so that the list
 * stays short. */
#ifndef GAIA_GLIBC_H
#define GAIA_GLIBC_H

#include <features.h> /* __GLIBC__ */

#if defined(__linux__) && defined(__GLIBC__) && !defined(GAIA_NEW_GLIBC)
#if defined(__x86_64__)
#define GAIA_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#elif defined(__aarch64__)
#define GAIA_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#endif
#endif

#ifdef GAIA_OLD
GAIA_OLD(dlopen);
GAIA_OLD(dlsym);
GAIA_OLD(dladdr);
GAIA_OLD(pthread_create);
GAIA_OLD(pthread_detach);
#endif

#endif
