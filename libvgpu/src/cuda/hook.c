#include "cuda/hook.h"
#include "cuda/pool.h"

int gaia_card_ask(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                  int *error) {
    gaia_cu_uuid uuid;
    /* Only the second version tells the parts of a MIG card apart. */
    int answer = driver->cuDeviceGetUuid_v2(&uuid, device);
    if (answer != GAIA_CU_SUCCESS)
        answer = driver->cuDeviceGetUuid(&uuid, device);
    *error = answer;
    if (answer != GAIA_CU_SUCCESS)
        return -1;
    int card = gaia_pages_card(self->limits, uuid.bytes);
    if (card >= 0 && (unsigned)device < GAIA_DEVICES)
        atomic_store_explicit(&self->card_of_device[device], (uint8_t)(card + 1), memory_order_relaxed);
    return card; /* "not ours" is not remembered: the agent may yet write the card */
}

struct gaia_usage_card *gaia_claim_hard(struct gaia_process *self, const struct gaia_driver *driver,
                                        unsigned card, uint64_t bytes) {
    return gaia_pools_give_back(self, driver, card) ? gaia_claim(self, card, bytes) : NULL;
}
