/*
 * gaia_nvml_abi.h - the part of NVML's binary interface that the shadow libnvidia-ml touches. Facts of
 * the interface; libvgpu/tests/abi_check.c compares them with a real nvml.h where one is at hand.
 */
#ifndef GAIA_NVML_ABI_H
#define GAIA_NVML_ABI_H

#include <stddef.h>

typedef int gaia_nvml_result;
typedef void *gaia_nvml_device;

enum {
    GAIA_NVML_SUCCESS = 0,
    GAIA_NVML_INVALID_ARGUMENT = 2,
    GAIA_NVML_NOT_FOUND = 6,
    GAIA_NVML_INSUFFICIENT_SIZE = 7,
    GAIA_NVML_FUNCTION_NOT_FOUND = 13,
    GAIA_NVML_MEMORY = 20,
};

typedef struct {
    unsigned long long total, free, used;
} gaia_nvml_memory;
typedef struct {
    unsigned version; /* sizeof | 2 << 24; the real library refuses another with its own code */
    unsigned long long total, reserved, free, used;
} gaia_nvml_memory_v2;

/* A running process: the unversioned call hands out 16 bytes, _v2 and _v3 24. */
typedef struct {
    unsigned pid;
    unsigned long long used;
} gaia_nvml_process_v1;
typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} gaia_nvml_process_v2;

typedef struct {
    unsigned pid;
    unsigned long long stamp;
    unsigned sm, memory, encoder, decoder;
} gaia_nvml_utilization;

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_used;
} gaia_nvml_process_detail;
typedef struct {
    unsigned version, mode, count;
    gaia_nvml_process_detail *process;
} gaia_nvml_process_details;

typedef struct {
    unsigned long long stamp;
    unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
} gaia_nvml_utilization_info;
typedef struct {
    unsigned version, count;
    unsigned long long last_seen;
    gaia_nvml_utilization_info *process;
} gaia_nvml_utilization_infos;

enum { GAIA_NVML_UUID = 96 };

#define GAIA_NVML_HOOKED(X)                                                                                  \
    X(nvmlDeviceGetMemoryInfo, (gaia_nvml_device device, gaia_nvml_memory * memory))                         \
    X(nvmlDeviceGetMemoryInfo_v2, (gaia_nvml_device device, gaia_nvml_memory_v2 * memory))                   \
    X(nvmlDeviceGetComputeRunningProcesses, (gaia_nvml_device device, unsigned *count, void *list))          \
    X(nvmlDeviceGetComputeRunningProcesses_v2, (gaia_nvml_device device, unsigned *count, void *list))       \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (gaia_nvml_device device, unsigned *count, void *list))       \
    X(nvmlDeviceGetGraphicsRunningProcesses, (gaia_nvml_device device, unsigned *count, void *list))         \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, (gaia_nvml_device device, unsigned *count, void *list))      \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, (gaia_nvml_device device, unsigned *count, void *list))      \
    X(nvmlDeviceGetMPSComputeRunningProcesses, (gaia_nvml_device device, unsigned *count, void *list))       \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, (gaia_nvml_device device, unsigned *count, void *list))    \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, (gaia_nvml_device device, unsigned *count, void *list))    \
    X(nvmlDeviceGetRunningProcessDetailList, (gaia_nvml_device device, gaia_nvml_process_details * list))    \
    X(nvmlDeviceGetProcessUtilization,                                                                       \
      (gaia_nvml_device device, gaia_nvml_utilization * list, unsigned *count, unsigned long long since))    \
    X(nvmlDeviceGetProcessesUtilizationInfo, (gaia_nvml_device device, gaia_nvml_utilization_infos * list))

#define GAIA_NVML_ASKED(X) X(nvmlDeviceGetUUID, (gaia_nvml_device device, char *uuid, unsigned length))

#endif
