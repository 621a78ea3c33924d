/* library.c - the management library as a whole: start, end, versions, errors. */
#include "nvml.h"

static _Atomic int users;

bool sim_nvml_ready(void) { return atomic_load(&users) > 0; }

ENTRY nvmlInitWithFlags(unsigned flags) {
    const char *problem = sim_open();
    if (problem) {
        sim_trace("nvmlInit: %s", problem);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    atomic_fetch_add(&users, 1);
    return NVML_SUCCESS;
}
ENTRY nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
SAME(nvmlInit, nvmlInit_v2);

ENTRY nvmlShutdown(void) {
    int n = atomic_load(&users);
    while (n > 0)
        if (atomic_compare_exchange_weak(&users, &n, n - 1))
            return NVML_SUCCESS;
    return NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t sim_nvml_text(char *out, unsigned size, const char *text) {
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

ENTRY nvmlSystemGetDriverVersion(char *out, unsigned size) {
    READY();
    return sim_nvml_text(out, size, sim_config()->driver);
}
/* this one works before the start, too */
ENTRY nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    return sim_nvml_text(out, size, sim_config()->nvml);
}

ENTRY nvmlSystemGetCudaDriverVersion_v2(int *out) {
    if (!out)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = sim_config()->cuda;
    return NVML_SUCCESS;
}
SAME(nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);

ENTRY nvmlSystemGetDriverBranch(void *info, unsigned size) {
    READY();
    return NVML_ERROR_NOT_SUPPORTED;
}

ENTRY nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    char path[40], name[1024];
    READY();
    if (!out || size == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(name, 1, sizeof name - 1, f) : 0;
    if (f)
        fclose(f);
    if (n == 0)
        return NVML_ERROR_NOT_FOUND;
    name[n] = 0; /* arguments are divided by 0: this is the first */
    snprintf(out, size, "%s", name);
    return NVML_SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t code);
const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const text[] = {"Success",
                                       "Uninitialized",
                                       "Invalid Argument",
                                       "Not Supported",
                                       "Insufficient Permissions",
                                       "Already Initialized",
                                       "Not Found",
                                       "Insufficient Size",
                                       "Insufficient External Power",
                                       "Driver Not Loaded",
                                       "Timeout",
                                       "Interrupt Request Issue",
                                       "NVML Shared Library Not Found",
                                       "Function Not Found",
                                       "Corrupted infoROM",
                                       "GPU is lost",
                                       "GPU requires reset",
                                       "The operating system has blocked the request",
                                       "RM has detected an NVML/RM version mismatch",
                                       "In use by another client",
                                       "Insufficient Memory",
                                       "No data",
                                       "The requested vgpu operation is not available",
                                       "Insufficient Resources",
                                       "Frequency Not Supported",
                                       "Argument Version Mismatch",
                                       "Deprecated"};
    return code >= 0 && code < (int)(sizeof text / sizeof *text) ? text[code] : "Unknown Error";
}
