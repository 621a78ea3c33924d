/* processes.c - who is on the card: this slot's processes, nobody else's. Where the card is of no slice
 * of ours, or the pages are none, that is nobody. */
#include "nvml/nvml.h"
#include <string.h>

typedef gaia_nvml_result (*list_call)(gaia_nvml_device, unsigned *, void *);

enum { SPARE = 16, TRIES = 4 };

/* All records of CALL into memory of our own (to be unmapped by the caller); *count of RECORD bytes. */
static int whole_list(list_call call, gaia_nvml_device device, size_t record, void **list, size_t *size,
                      unsigned *count) {
    int error = GAIA_NVML_INSUFFICIENT_SIZE;
    *list = NULL;
    *count = 0;
    for (int tries = 0; tries < TRIES && error == GAIA_NVML_INSUFFICIENT_SIZE; tries++) {
        if (*list)
            gaia_prim_unmap(*list, *size);
        *count += SPARE; /* processes start while we ask */
        *size = *count * record;
        *list = gaia_prim_memory(*size);
        if (!*list)
            return GAIA_NVML_MEMORY;
        error = call(device, count, *list);
    }
    return error;
}

static unsigned pid_at(const void *list, size_t record, unsigned i) {
    unsigned pid;
    memcpy(&pid, (const char *)list + i * record, sizeof pid);
    return pid;
}

static int running(list_call call, gaia_nvml_device device, unsigned *count, void *list, size_t record) {
    void *all;
    size_t size = 0;
    unsigned there, ours = 0, room = count ? *count : 0;
    if (!count || (room != 0 && !list))
        return call(device, count, list); /* the real library's to refuse */
    int error = whole_list(call, device, record, &all, &size, &there);
    if (error == GAIA_NVML_SUCCESS) {
        const struct gaia_pages *pages = gaia_nvml_pages();
        bool mine = gaia_nvml_card(pages, device) >= 0;
        for (unsigned i = 0; i < there && mine; i++) {
            if (!gaia_nvml_ours(pages, pid_at(all, record, i)))
                continue;
            if (ours < room)
                memcpy((char *)list + ours * record, (char *)all + i * record, record);
            ours++;
        }
        *count = ours;
        error = ours > room ? GAIA_NVML_INSUFFICIENT_SIZE : GAIA_NVML_SUCCESS;
    }
    if (all)
        gaia_prim_unmap(all, size);
    return error;
}

#define RUNNING(name, record)                                                                                \
    GAIA_EXPORT gaia_nvml_result name(gaia_nvml_device device, unsigned *count, void *list) {                \
        return running(gaia_nvml()->name, device, count, list, sizeof(record));                              \
    }
RUNNING(nvmlDeviceGetComputeRunningProcesses, gaia_nvml_process_v1)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, gaia_nvml_process_v2)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, gaia_nvml_process_v2)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, gaia_nvml_process_v1)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, gaia_nvml_process_v2)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, gaia_nvml_process_v2)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, gaia_nvml_process_v1)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, gaia_nvml_process_v2)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, gaia_nvml_process_v2)

/* Keep the records of ours at the front of LIST; how many. PID_AT: offset of the pid in a record. */
static unsigned keep_ours(gaia_nvml_device device, void *list, unsigned count, size_t record, size_t offset) {
    const struct gaia_pages *pages = gaia_nvml_pages();
    unsigned kept = 0;
    if (gaia_nvml_card(pages, device) < 0)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        char *at = (char *)list + i * record;
        if (gaia_nvml_ours(pages, pid_at(at + offset, record, 0)))
            memmove((char *)list + kept++ * record, at, record);
    }
    return kept;
}

/* The calls below fill the caller's array; asked with one that is too small or missing they say how
 * large it must be. That number then counts everybody: too large an array does no harm. */

GAIA_EXPORT gaia_nvml_result nvmlDeviceGetRunningProcessDetailList(gaia_nvml_device device,
                                                                   gaia_nvml_process_details *list) {
    int error = gaia_nvml()->nvmlDeviceGetRunningProcessDetailList(device, list);
    if (error == GAIA_NVML_SUCCESS && list && list->process)
        list->count = keep_ours(device, list->process, list->count, sizeof *list->process,
                                offsetof(gaia_nvml_process_detail, pid));
    return error;
}

GAIA_EXPORT gaia_nvml_result nvmlDeviceGetProcessUtilization(gaia_nvml_device device,
                                                             gaia_nvml_utilization *list, unsigned *count,
                                                             unsigned long long since) {
    int error = gaia_nvml()->nvmlDeviceGetProcessUtilization(device, list, count, since);
    if (error != GAIA_NVML_SUCCESS || !list || !count)
        return error;
    *count = keep_ours(device, list, *count, sizeof *list, offsetof(gaia_nvml_utilization, pid));
    return *count ? error : GAIA_NVML_NOT_FOUND; /* as NVML says when nobody has run anything */
}

GAIA_EXPORT gaia_nvml_result nvmlDeviceGetProcessesUtilizationInfo(gaia_nvml_device device,
                                                                   gaia_nvml_utilization_infos *list) {
    int error = gaia_nvml()->nvmlDeviceGetProcessesUtilizationInfo(device, list);
    if (error != GAIA_NVML_SUCCESS || !list || !list->process)
        return error;
    list->count = keep_ours(device, list->process, list->count, sizeof *list->process,
                            offsetof(gaia_nvml_utilization_info, pid));
    return list->count ? error : GAIA_NVML_NOT_FOUND;
}
