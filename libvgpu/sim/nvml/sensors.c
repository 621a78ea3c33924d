/* sensors.c - clocks, power, temperature, modes: plausible values that follow the card's use. */
#include "nvml.h"

#define NUMBER(name, value)                                                                                  \
    ENTRY name(nvmlDevice_t d, unsigned *out) {                                                              \
        DEVICE(card, d, out);                                                                                \
        *out = (value);                                                                                      \
        return NVML_SUCCESS;                                                                                 \
    }                                                                                                        \
    _Static_assert(1, "")

enum { IDLE_MW = 30000, FULL_MW = 350000 };

static unsigned temperature(unsigned card) { return 35 + sim_nvml_busy(card) * 35 / 100; }

NUMBER(nvmlDeviceGetPowerUsage, IDLE_MW + (FULL_MW - IDLE_MW) / 100 * sim_nvml_busy(d->card));
NUMBER(nvmlDeviceGetPowerManagementLimit, FULL_MW);
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, FULL_MW);
NUMBER(nvmlDeviceGetEnforcedPowerLimit, FULL_MW);
NUMBER(nvmlDeviceGetPowerManagementMode, 1);
NUMBER(nvmlDeviceGetPowerState, sim_nvml_busy(d->card) ? 0 : 8);
NUMBER(nvmlDeviceGetPerformanceState, sim_nvml_busy(d->card) ? 0 : 8);
NUMBER(nvmlDeviceGetFanSpeed, 30 + sim_nvml_busy(d->card) * 40 / 100);
NUMBER(nvmlDeviceGetNumFans, 1);
NUMBER(nvmlDeviceGetComputeMode, 0);
NUMBER(nvmlDeviceGetPersistenceMode, 1);
NUMBER(nvmlDeviceGetDisplayMode, 0);
NUMBER(nvmlDeviceGetDisplayActive, 0);
NUMBER(nvmlDeviceGetMaxMigDeviceCount, 0);
NUMBER(nvmlDeviceIsMigDeviceHandle, 0);

ENTRY nvmlDeviceGetFanSpeed_v2(nvmlDevice_t d, unsigned fan, unsigned *out) {
    return fan == 0 ? nvmlDeviceGetFanSpeed(d, out) : NVML_ERROR_INVALID_ARGUMENT;
}

ENTRY nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t d, unsigned *least, unsigned *most) {
    DEVICE(card, d, least);
    if (!most)
        return NVML_ERROR_INVALID_ARGUMENT;
    *least = 100000;
    *most = FULL_MW;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetTemperature(nvmlDevice_t d, unsigned sensor, unsigned *out) {
    DEVICE(card, d, out);
    if (sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = temperature(d->card);
    return NVML_SUCCESS;
}

struct temperature1 {
    unsigned version, sensor;
    int temperature;
};
ENTRY nvmlDeviceGetTemperatureV(nvmlDevice_t d, struct temperature1 *out) {
    DEVICE(card, d, out);
    if (out->version != (sizeof *out | 1u << 24))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    out->temperature = (int)temperature(d->card);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetTemperatureThreshold(nvmlDevice_t d, unsigned threshold, unsigned *out) {
    DEVICE(card, d, out);
    if (threshold > 2)
        return NVML_ERROR_NOT_SUPPORTED;
    *out = 98 - threshold * 4;
    return NVML_SUCCESS;
}

/* clocks: 0 graphics, 1 SM, 2 memory, 3 video; MHz */
static const unsigned full[] = {2520, 2520, 10501, 1950}, idle[] = {210, 210, 405, 555};

ENTRY nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, unsigned clock, unsigned *out) {
    DEVICE(card, d, out);
    if (clock > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = full[clock];
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetClockInfo(nvmlDevice_t d, unsigned clock, unsigned *out) {
    DEVICE(card, d, out);
    if (clock > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = sim_nvml_busy(d->card) ? full[clock] : idle[clock];
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetClock(nvmlDevice_t d, unsigned clock, unsigned which, unsigned *out) {
    if (which == 0)
        return nvmlDeviceGetClockInfo(d, clock, out);
    return which == 3 ? nvmlDeviceGetMaxClockInfo(d, clock, out) : NVML_ERROR_NOT_SUPPORTED;
}

ENTRY nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *out) {
    DEVICE(card, d, out);
    *out = sim_nvml_busy(d->card) ? 0 : 1; /* idle */
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetCurrentClocksEventReasons, nvmlDeviceGetCurrentClocksThrottleReasons);
