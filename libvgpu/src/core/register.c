/* register.c - who owns a place is decided by one word, `owner`, and by compare-and-swap alone:
 *
 *   free (0)  -> mine            register
 *   dead      -> mine            register; words zeroed after the claim
 *   dead      -> sweeper -> 0    sweep; words zeroed in between
 *
 * A place's words count in everybody's sums whoever the owner is, so memory of a process that died in
 * any of these steps is counted until the place is zeroed, never less. */
#include "core/register.h"
#include "core/prim.h"

static void zero_words(struct gaia_usage_process *place) {
    for (int card = 0; card < GAIA_CARDS; card++) {
        struct gaia_usage_card *words = &place->card[card];
        gaia_put(&words->used, 0);
        gaia_put(&words->pending, 0);
        gaia_put(&words->context, 0);
        gaia_put(&words->busy_ns, 0);
        gaia_put(&words->throttled_ns, 0);
        gaia_put(&words->launches, 0);
        gaia_put(&words->returns, 0);
        gaia_put(&words->blind_ns, 0);
    }
    gaia_put(&place->registered_ns, 0);
    gaia_put(&place->library, 0);
    gaia_put(&place->reserved[GAIA_RESERVED_IMAGE], 0);
    gaia_put(&place->reserved[GAIA_RESERVED_NAMESPACE], 0);
}

/* A pid of another pid namespace means nothing here: only its own namespace, or the agent, may call
 * that owner dead. 0 = the owner was stopped or killed before it wrote its own. */
static bool may_judge(const struct gaia_usage_process *place, const struct gaia_identity *identity) {
    uint64_t name_space = gaia_read(&place->reserved[GAIA_RESERVED_NAMESPACE]);
    return name_space == 0 || name_space == identity->name_space;
}

static bool left_behind(const struct gaia_usage_process *place, uint64_t owner,
                        const struct gaia_identity *identity) {
    if (owner == identity->owner) /* ours by pid: of a former program, or of a second copy of this library */
        return gaia_read(&place->reserved[GAIA_RESERVED_IMAGE]) != identity->image;
    return may_judge(place, identity) && gaia_owner_dead(owner);
}

static bool write_identity(struct gaia_usage_process *place, const struct gaia_identity *identity) {
    gaia_put(&place->registered_ns, gaia_prim_now());
    gaia_put(&place->library, GAIA_LIBRARY_VERSION);
    gaia_put(&place->reserved[GAIA_RESERVED_IMAGE], identity->image);
    gaia_put(&place->reserved[GAIA_RESERVED_NAMESPACE], identity->name_space);
    /* A sweeper of another pid namespace may have taken the place before it could read ours. */
    return gaia_read(&place->owner) == identity->owner;
}

static bool take(struct gaia_usage_process *place, const struct gaia_identity *identity) {
    uint64_t owner = gaia_read(&place->owner);
    if (owner != 0 && !left_behind(place, owner, identity))
        return false;
    if (!gaia_claim_owner(&place->owner, owner, identity->owner))
        return false; /* somebody was faster; the caller goes on to the next place */
    zero_words(place);
    return write_identity(place, identity);
}

bool gaia_register(struct gaia_usage *usage, struct gaia_identity *identity, uint32_t *index) {
    gaia_identity_read(identity);
    if (identity->owner == 0)
        return false;
    gaia_sweep(usage, identity);
    for (uint32_t i = 0; i < GAIA_PROCESSES; i++) {
        if (!take(&usage->process[i], identity))
            continue;
        gaia_raise(&usage->high_water, i + 1);
        *index = i;
        return true;
    }
    return false;
}

static bool all_zero(const struct gaia_usage_process *place) {
    uint64_t any = 0;
    for (int card = 0; card < GAIA_CARDS; card++)
        any |= gaia_peek(&place->card[card].used) | gaia_peek(&place->card[card].pending) |
               gaia_peek(&place->card[card].context);
    return any == 0;
}

unsigned gaia_sweep(struct gaia_usage *usage, const struct gaia_identity *identity) {
    unsigned freed = 0;
    uint64_t end = gaia_read(&usage->high_water);
    for (uint64_t i = 0; i < end && i < GAIA_PROCESSES; i++) {
        struct gaia_usage_process *place = &usage->process[i];
        uint64_t owner = gaia_read(&place->owner);
        /* A free place holds no bytes. One that does was scribbled on, and would count for ever. */
        if (owner == 0 ? all_zero(place) : !left_behind(place, owner, identity))
            continue;
        if (!gaia_claim_owner(&place->owner, owner, identity->owner))
            continue;
        zero_words(place);
        /* Released after the zeroes: who finds the place free finds it empty. */
        gaia_publish(&place->owner, 0);
        freed++;
    }
    return freed;
}
