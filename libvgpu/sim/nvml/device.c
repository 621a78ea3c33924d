/* device.c - which cards there are, and what identifies them. */
#include "nvml.h"
#include <strings.h>

#define H(i)                                                                                                 \
    { i }
const struct handle sim_handles[SIM_CARDS] = {H(0), H(1), H(2),  H(3),  H(4),  H(5),  H(6),  H(7),
                                              H(8), H(9), H(10), H(11), H(12), H(13), H(14), H(15)};

static nvmlReturn_t number(unsigned *out, unsigned value) {
    *out = value;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetCount_v2(unsigned *out) {
    READY();
    return out ? number(out, sim_config()->machine.count) : NVML_ERROR_INVALID_ARGUMENT;
}
SAME(nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

ENTRY nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
    READY();
    if (!out || index >= sim_config()->machine.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = &sim_handles[index];
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);

ENTRY nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
    char text[41];
    READY();
    if (!uuid || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < sim_config()->machine.count; i++) {
        sim_uuid_text(sim_config()->machine.card[i].uuid, text);
        if (strcasecmp(uuid, text) == 0) {
            *out = &sim_handles[i];
            return NVML_SUCCESS;
        }
    }
    return strncmp(uuid, "GPU-", 4) == 0 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

ENTRY nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *out) {
    unsigned domain = 0, bus = 0, slot = 0;
    READY();
    if (!text || !out)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(text, "%x:%x", &bus, &slot) != 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < sim_config()->machine.count; i++) {
        const struct sim_card *card = &sim_config()->machine.card[i];
        if (card->domain == domain && card->bus == bus && slot == 0) {
            *out = &sim_handles[i];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}
SAME(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);

ENTRY nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) {
    READY();
    return serial && out ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

ENTRY nvmlDeviceGetIndex(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, d->card);
}
SAME(nvmlDeviceGetMinorNumber, nvmlDeviceGetIndex);
SAME(nvmlDeviceGetModuleId, nvmlDeviceGetIndex);

ENTRY nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned size) {
    DEVICE(card, d, out);
    return sim_nvml_text(out, size, card->name);
}

ENTRY nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned size) {
    char text[41];
    DEVICE(card, d, out);
    sim_uuid_text(card->uuid, text);
    return sim_nvml_text(out, size, text);
}

ENTRY nvmlDeviceGetBoardId(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, card->domain << 16 | card->bus << 8);
}

ENTRY nvmlDeviceGetMultiGpuBoard(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 0);
}

ENTRY nvmlDeviceGetBrand(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 14); /* "NVIDIA": none of the product lines */
}

ENTRY nvmlDeviceGetVbiosVersion(nvmlDevice_t d, char *out, unsigned size) {
    DEVICE(card, d, out);
    return sim_nvml_text(out, size, "00.00.00.00.00");
}

ENTRY nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *out) {
    DEVICE(card, a, out);
    if (!sim_handle_valid(b))
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = a == b;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetCudaComputeCapability(nvmlDevice_t d, int *major, int *minor) {
    DEVICE(card, d, major);
    if (!minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = card->major;
    *minor = card->minor;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetArchitecture(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, card->major >= 10  ? 10                                 /* Blackwell */
                       : card->major == 9 ? 9                                  /* Hopper */
                       : card->major == 8 ? card->minor == 9 ? 8 /* Ada */ : 7 /* Ampere */
                                          : 6 /* Turing */);
}

ENTRY nvmlDeviceGetNumGpuCores(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, card->multiprocessors * 128);
}

ENTRY nvmlDeviceGetMemoryBusWidth(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 384);
}

ENTRY nvmlDeviceGetVirtualizationMode(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 0);
}

/* ---- PCI --------------------------------------------------------------------------------------- */

void sim_nvml_pci(const struct sim_card *card, struct pci_info *out) {
    memset(out, 0, sizeof *out);
    out->domain = card->domain;
    out->bus = card->bus;
    out->device_id = 0xfffe10de; /* the vendor's, and a device that it has not made */
    out->subsystem_id = 0x000010de;
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:00.0", card->domain & 0xffff, card->bus & 0xff);
    snprintf(out->id, sizeof out->id, "%08X:%02X:00.0", card->domain, card->bus & 0xff);
}

ENTRY nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, struct pci_info *out) {
    DEVICE(card, d, out);
    sim_nvml_pci(card, out);
    return NVML_SUCCESS;
}

/* before version 3 the short text was the only one; after it came words that are reserved in version 2
 * and missing in version 1, so only what both have is written */
ENTRY nvmlDeviceGetPciInfo_v2(nvmlDevice_t d, void *out) {
    struct pci_info info;
    DEVICE(card, d, out);
    sim_nvml_pci(card, &info);
    memcpy(out, &info, offsetof(struct pci_info, id));
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v2);

ENTRY nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 4);
}
SAME(nvmlDeviceGetCurrPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration);
SAME(nvmlDeviceGetGpuMaxPcieLinkGeneration, nvmlDeviceGetMaxPcieLinkGeneration);

ENTRY nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 16);
}
SAME(nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth);

ENTRY nvmlDeviceGetPcieThroughput(nvmlDevice_t d, int counter, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 0);
}

ENTRY nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    return number(out, 0);
}
