/* kernel.c - handles of kernels, and how long a kernel takes. */
#include "cuda.h"
#include <stdlib.h>

#define KERNELS 1024
#define SPIN "gaia_spin_"

/* The first one stands for every name that says nothing; none is ever freed. Handles are addresses in
 * this table, so that a handle of somewhere else is told apart without reading it. */
static struct sim_kernel {
    bool chosen; /* the name says how long it takes */
    uint64_t ns;
} kernels[KERNELS];
static _Atomic uint64_t used = 1;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

void *sim_kernel_named(const char *name) {
    char *end;
    if (strncmp(name, SPIN, sizeof SPIN - 1) != 0)
        return &kernels[0];
    const char *digits = name + sizeof SPIN - 1;
    uint64_t ns = strtoull(digits, &end, 10), i;
    if (*digits < '0' || *digits > '9' || *end)
        return &kernels[0];
    pthread_mutex_lock(&making);
    for (i = 1; i < used && kernels[i].ns != ns; i++) {
    }
    if (i == used && used < KERNELS) {
        kernels[i] = (struct sim_kernel){true, ns};
        used++;
    }
    pthread_mutex_unlock(&making);
    return &kernels[i < KERNELS ? i : 0];
}

uint64_t sim_kernel_ns(const void *function, unsigned card, uint64_t blocks) {
    const struct sim_kernel *k = function;
    const struct sim_config *config = sim_config();
    const struct sim_card *c = &config->machine.card[card];
    if (k > &kernels[0] && k < &kernels[KERNELS] && k->chosen)
        return k->ns;
    if (likely(config->block_ns == 0))
        return config->kernel_ns;
    uint64_t at_once = (uint64_t)c->multiprocessors * c->resident;
    return config->kernel_ns + config->block_ns * ((blocks + at_once - 1) / at_once);
}
