/* entry_points.h - the list of cuda_symbols.def as data. */
#ifndef SIM_ENTRY_POINTS_H
#define SIM_ENTRY_POINTS_H

#include "cuda.h"

struct sim_entry_point {
    const char *base, *symbol;
    int version; /* of CUDA, that introduced this variant */
    int thread;  /* of the per-thread default stream */
    CUresult (*function)(void);
};
extern const struct sim_entry_point sim_entry_points[];
extern const size_t sim_entry_point_count;

#endif
