/* hook.h - what all hooks have in common: which card a call is about, reserving before the driver is
 * asked, and writing down afterwards. A refusal of ours is CUDA_ERROR_OUT_OF_MEMORY and nothing else;
 * the driver's own answers are handed on unchanged and change no account. */
#ifndef GAIA_HOOK_H
#define GAIA_HOOK_H

#include "core/account.h"
#include "cuda/driver.h"

/* prototypes of what we export */
#define X(name, parameters) GAIA_EXPORT gaia_cu_result name parameters;
GAIA_CUDA_HOOKED(X)
#undef X

/* Bytes reserved for one call of the driver. */
struct gaia_hold {
    struct gaia_process *self;
    struct gaia_usage_card *words;
    uint64_t bytes;
    unsigned card;
};

/* Index in `limits` of the card behind DEVICE, remembered; -1: not one of this slot's. When the driver
 * does not know the device, *error is its answer, else 0. */
int gaia_card_ask(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                  int *error);

/* The same, only if it is remembered; else -1. */
static inline int gaia_card_known(struct gaia_process *self, gaia_cu_device device) {
    /* Relaxed: the index stands on its own, and a stale 0 only asks again. */
    return __builtin_expect((unsigned)device < GAIA_DEVICES, 1)
               ? (int)atomic_load_explicit(&self->card_of_device[device], memory_order_relaxed) - 1
               : -1;
}

static inline int gaia_card(struct gaia_process *self, const struct gaia_driver *driver,
                            gaia_cu_device device, int *error) {
    *error = 0;
    int known = gaia_card_known(self, device);
    return __builtin_expect(known >= 0, 1) ? known : gaia_card_ask(self, driver, device, error);
}

/* gaia_claim, and on refusal once more after this process's own pools gave back what they only cache. */
struct gaia_usage_card *gaia_claim_hard(struct gaia_process *self, const struct gaia_driver *driver,
                                        unsigned card, uint64_t bytes);

/* A context that was made behind our back (cudart takes the primary context through a private table):
 * found at the first allocation, charged then. False when it does not fit. */
bool gaia_context_found(struct gaia_process *self, const struct gaia_driver *driver, gaia_cu_device device,
                        unsigned card);

/* Reserve BYTES on DEVICE. 0, or the code to return. */
static inline int gaia_hold_device(struct gaia_hold *hold, const struct gaia_driver *driver,
                                   gaia_cu_device device, uint64_t bytes) {
    int error;
    hold->self = gaia_process_enter();
    if (__builtin_expect(hold->self == NULL, 0))
        return GAIA_CU_OUT_OF_MEMORY;
    int card = gaia_card(hold->self, driver, device, &error);
    if (__builtin_expect(card < 0, 0))
        return error ? error : GAIA_CU_OUT_OF_MEMORY;
    hold->card = (unsigned)card;
    hold->bytes = bytes;
    hold->words = gaia_claim(hold->self, hold->card, bytes);
    if (__builtin_expect(hold->words == NULL, 0))
        hold->words = gaia_claim_hard(hold->self, driver, hold->card, bytes);
    return hold->words ? 0 : GAIA_CU_OUT_OF_MEMORY;
}

/* Reserve BYTES on the calling thread's current device. Without one the driver's own answer. */
static inline int gaia_hold_current(struct gaia_hold *hold, const struct gaia_driver *driver,
                                    uint64_t bytes) {
    gaia_cu_device device;
    int error = driver->cuCtxGetDevice(&device);
    if (__builtin_expect(error != GAIA_CU_SUCCESS, 0))
        return error;
    error = gaia_hold_device(hold, driver, device, bytes);
    if (__builtin_expect(error != 0, 0))
        return error;
    /* Relaxed: written by this process only, and 0 only leads to a closer look. */
    if (__builtin_expect(atomic_load_explicit(&hold->self->contexts[hold->card], memory_order_relaxed) == 0,
                         0) &&
        !gaia_context_found(hold->self, driver, device, hold->card)) {
        gaia_settle(hold->words, bytes, 0);
        return GAIA_CU_OUT_OF_MEMORY;
    }
    return 0;
}

/* The driver gave USED bytes, known from now on as KEY: write them down, charge them, end the hold.
 * False when there is no memory to write them down: the caller gives them back, nothing is charged. */
static inline bool gaia_hold_keep(struct gaia_hold *hold, enum gaia_kind kind, uint64_t key, uint64_t used,
                                  uint64_t link) {
    struct gaia_entry entry = {
        .key = key, .size = used, .link = link, .card = (uint8_t)hold->card, .kind = (uint8_t)kind};
    bool kept = gaia_table_put(&hold->self->table, &entry);
    gaia_settle(hold->words, hold->bytes, kept ? used : 0);
    return kept;
}

static inline void gaia_hold_drop(struct gaia_hold *hold) { gaia_settle(hold->words, hold->bytes, 0); }

/* The calling thread's context, as the link of what is allocated in it. */
static inline uint64_t gaia_current_context(const struct gaia_driver *driver) {
    gaia_cu_object context = NULL;
    driver->cuCtxGetCurrent(&context);
    return (uint64_t)(uintptr_t)context;
}

/* Take bytes off a card if the pages are there; without them they are summed up anew later. */
static inline void gaia_give_back(unsigned card, uint64_t bytes) {
    struct gaia_process *self = gaia_process_enter();
    if (__builtin_expect(self != NULL, 1))
        gaia_uncharge(self, card, bytes);
}

/* This process if it ever counted anything, without making anything. */
static inline struct gaia_process *gaia_process_known(void) {
    return atomic_load_explicit(&gaia_self, memory_order_acquire);
}

#endif
