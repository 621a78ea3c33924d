/* nvml.h - the management library's types, by its published ABI, and what its files share. */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include "../state.h"
#include <stdio.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef const struct handle { unsigned card; } * nvmlDevice_t;
#define ENTRY __attribute__((visibility("default"))) nvmlReturn_t
#define SAME(name, function)                                                                                 \
    extern __typeof__(function) name __attribute__((alias(#function), visibility("default")))

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25
};

extern const struct handle sim_handles[SIM_CARDS];
bool sim_nvml_ready(void);

static inline bool sim_handle_valid(nvmlDevice_t d) {
    return d >= sim_handles && d < sim_handles + sim_config()->machine.count;
}

#define READY()                                                                                              \
    do {                                                                                                     \
        if (!sim_nvml_ready())                                                                               \
            return NVML_ERROR_UNINITIALIZED;                                                                 \
        int code_ = sim_trouble(SIM_NVML);                                                                   \
        if (code_)                                                                                           \
            return code_;                                                                                    \
    } while (0)

/* the usual beginning: a valid device, and somewhere to put the answer */
#define DEVICE(card, d, out)                                                                                 \
    READY();                                                                                                 \
    if (!sim_handle_valid(d) || !(out))                                                                      \
        return NVML_ERROR_INVALID_ARGUMENT;                                                                  \
    const struct sim_card *card = &sim_config()->machine.card[(d)->card];                                    \
    (void)card

nvmlReturn_t sim_nvml_text(char *out, unsigned size, const char *text);

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
void sim_nvml_pci(const struct sim_card *card, struct pci_info *out);

/* Utilisation of a card in percent, over the newest window that may be seen. */
unsigned sim_nvml_busy(unsigned card);

#endif
