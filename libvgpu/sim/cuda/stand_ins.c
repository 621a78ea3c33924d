/* stand_ins.c - every published entry point: weak stand-ins for those not modelled, and the list of all. */
#include "cuda.h"
#include "entry_points.h"

static CUresult stand_in(const char *name) {
    sim_trace("stand-in %s", name);
    READY();
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define S(base, version, thread, symbol)                                                                     \
    __attribute__((weak, visibility("default"))) CUresult symbol(void);                                      \
    CUresult symbol(void) { return stand_in(#symbol); }
#include "cuda_symbols.def"
#undef S

const struct sim_entry_point sim_entry_points[] = {
#define S(base, version, thread, symbol) {#base, #symbol, version, thread, symbol},
#include "cuda_symbols.def"
#undef S
};
const size_t sim_entry_point_count = sizeof sim_entry_points / sizeof *sim_entry_points;
