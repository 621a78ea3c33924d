/* memory.c - NVML's view of memory: the same numbers as cuMemGetInfo, by the same function. A card of
 * which this slot has no slice stays visible with 0 bytes: hiding it would change indices that programs
 * compare with other tools. */
#include "nvml/nvml.h"

static void look(gaia_nvml_device device, unsigned long long real_total, unsigned long long real_free,
                 struct gaia_report_view *report) {
    const struct gaia_pages *pages = gaia_nvml_pages();
    int card = gaia_nvml_card(pages, device);
    *report = (struct gaia_report_view){0};
    if (card >= 0)
        gaia_report(pages->limits, pages->usage, 0, (unsigned)card, real_total, real_free, report);
}

GAIA_EXPORT gaia_nvml_result nvmlDeviceGetMemoryInfo(gaia_nvml_device device, gaia_nvml_memory *memory) {
    struct gaia_report_view report;
    int error = gaia_nvml()->nvmlDeviceGetMemoryInfo(device, memory);
    if (error != GAIA_NVML_SUCCESS || !memory)
        return error;
    look(device, memory->total, memory->free, &report);
    memory->total = report.total;
    memory->free = report.free;
    memory->used = report.used;
    return error;
}

GAIA_EXPORT gaia_nvml_result nvmlDeviceGetMemoryInfo_v2(gaia_nvml_device device,
                                                        gaia_nvml_memory_v2 *memory) {
    struct gaia_report_view report;
    /* The real library checks memory->version and answers for a wrong one. */
    int error = gaia_nvml()->nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (error != GAIA_NVML_SUCCESS || !memory)
        return error;
    look(device, memory->total, memory->free, &report);
    memory->total = report.total;
    memory->free = report.free;
    memory->used = report.used;
    memory->reserved = 0; /* the driver's reserve was taken off before the card was cut into slices */
    return error;
}
