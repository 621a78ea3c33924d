/* device.c - what one may ask of a device. */
#include "cuda.h"
#include <stdio.h>
#include <stdlib.h>

#define DEVICE(card, d)                                                                                      \
    READY();                                                                                                 \
    if (!sim_device_valid(d))                                                                                \
        return CUDA_ERROR_INVALID_DEVICE;                                                                    \
    const struct sim_card *card = &sim_config()->machine.card[sim_devices[d].card]

ENTRY cuDeviceGetCount(int *n) {
    READY();
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    *n = sim_device_count;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGet(CUdevice *out, int ordinal) {
    READY();
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device_valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetName(char *out, int size, CUdevice d) {
    DEVICE(card, d);
    if (!out || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)size, "%s", card->name);
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetUuid(CUuuid *out, CUdevice d) {
    DEVICE(card, d);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out->bytes, card->uuid, 16);
    return CUDA_SUCCESS;
}
SAME(cuDeviceGetUuid_v2, cuDeviceGetUuid);

ENTRY cuDeviceGetLuid(char *luid, unsigned *mask, CUdevice d) { return CUDA_ERROR_NOT_SUPPORTED; }

ENTRY cuDeviceGetPCIBusId(char *out, int size, CUdevice d) {
    DEVICE(card, d);
    if (!out || size < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)size, "%04x:%02x:00.0", card->domain, card->bus);
    return CUDA_SUCCESS;
}

ENTRY cuDeviceGetByPCIBusId(CUdevice *out, const char *text) {
    unsigned a = 0, bus = 0, slot = 0;
    READY();
    if (!out || !text)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x", &a, &bus, &slot) != 3) {
        a = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int d = 0; d < sim_device_count; d++) {
        const struct sim_card *card = &sim_config()->machine.card[sim_devices[d].card];
        if (card->domain == a && card->bus == bus && slot == 0) {
            *out = d;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

ENTRY cuDeviceComputeCapability(int *major, int *minor, CUdevice d) {
    DEVICE(card, d);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = card->major;
    *minor = card->minor;
    return CUDA_SUCCESS;
}

/* CU_DEVICE_ATTRIBUTE numbers and what the modelled card says; the rest are 0 */
static const struct {
    short attribute;
    int value;
} fixed[] = {
    {1, 1024},                                                      /* threads per block */
    {2, 1024},        {3, 1024},      {4, 64},     {5, 2147483647}, /* grid */
    {6, 65535},       {7, 65535},     {8, 49152},                   /* shared memory per block */
    {9, 65536},                                                     /* constant memory */
    {10, 32},                                                       /* warp */
    {11, 2147483647}, {12, 65536},                                  /* registers per block */
    {13, 2520000},                                                  /* kHz */
    {14, 512},        {15, 1},        {19, 1},     {21, 131072},    {22, 131072},
    {23, 65536},      {24, 16384},    {25, 16384}, {26, 16384},     {30, 512},
    {31, 1},          {36, 10501000}, /* memory kHz */
    {37, 384},                        /* bits of its bus */
    {38, 75497472},                   /* L2 cache */
    {39, 1536},                       /* threads per multiprocessor */
    {40, 2},          {41, 1},        /* unified addressing */
    {51, 32},         {78, 1},        {79, 1},     {80, 1},         {81, 102400},
    {82, 65536},      {83, 1},                                               /* managed memory */
    {87, 64},         {89, 1},        {90, 1},     {91, 1},         {95, 1}, /* cooperative launch */
    {97, 101376},                                                            /* shared memory, opt-in */
    {99, 1},          {102, 1},                                              /* virtual memory management */
    {106, 24},        {111, 1024},    {115, 1},                              /* memory pools */
    {119, 1},         {129, 1},
};

ENTRY cuDeviceGetAttribute(int *out, int attribute, CUdevice d) {
    DEVICE(card, d);
    if (!out || attribute < 1)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case 16:
        *out = (int)card->multiprocessors;
        return CUDA_SUCCESS;
    case 33:
        *out = (int)card->bus;
        return CUDA_SUCCESS;
    case 50:
        *out = (int)card->domain;
        return CUDA_SUCCESS;
    case 75:
        *out = card->major;
        return CUDA_SUCCESS;
    case 76:
        *out = card->minor;
        return CUDA_SUCCESS;
    case 134:
        *out = card->numa;
        return CUDA_SUCCESS;
    }
    *out = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (fixed[i].attribute == attribute)
            *out = fixed[i].value;
    return CUDA_SUCCESS;
}

/* the structure of the first CUDA versions */
ENTRY cuDeviceGetProperties(int *out, CUdevice d) {
    DEVICE(card, d);
    (void)card;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    const int properties[] = {1024,  1024,  1024, 64,         2147483647, 65535,   65535,
                              49152, 65536, 32,   2147483647, 65536,      2520000, 512};
    memcpy(out, properties, sizeof properties);
    return CUDA_SUCCESS;
}

/* graphs that allocate are not modelled: what they hold is nothing */
ENTRY cuDeviceGraphMemTrim(CUdevice d) {
    DEVICE(card, d);
    (void)card;
    return CUDA_SUCCESS;
}
ENTRY cuDeviceGetGraphMemAttribute(CUdevice d, int attribute, void *value) {
    DEVICE(card, d);
    (void)card;
    if (!value || attribute < 0 || attribute > 3)
        return CUDA_ERROR_INVALID_VALUE;
    memset(value, 0, 8);
    return CUDA_SUCCESS;
}
ENTRY cuDeviceSetGraphMemAttribute(CUdevice d, int attribute, void *value) {
    DEVICE(card, d);
    (void)card;
    return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuDeviceGetExecAffinitySupport(int *out, int type, CUdevice d) {
    DEVICE(card, d);
    (void)card;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
}
