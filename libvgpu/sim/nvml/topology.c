/* topology.c - how the cards are joined: PCI tree, NVLink, peer access, NUMA. */
#include "nvml.h"
#include <unistd.h>

ENTRY nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned *out) {
    DEVICE(card, a, out);
    if (!sim_handle_valid(b))
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = sim_level(a->card, b->card);
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t d, unsigned level, unsigned *count, nvmlDevice_t *out) {
    unsigned room, n = 0;
    DEVICE(card, d, count);
    room = out ? *count : 0;
    for (unsigned i = 0; i < sim_config()->machine.count; i++) {
        if (i == d->card || sim_level(d->card, i) != level)
            continue;
        if (n < room)
            out[n] = &sim_handles[i];
        n++;
    }
    *count = n;
    return NVML_SUCCESS;
}

/* ---- NVLink: a card's links are numbered by the cards they lead to, those to the switch last ----------- */

enum { TO_CARD = 0, TO_SWITCH = 2 };
#define MOST_LINKS 18

static unsigned links(unsigned card) {
    unsigned n = sim_config()->machine.nvswitch;
    for (unsigned i = 0; i < sim_config()->machine.count; i++)
        n += sim_config()->machine.links[card][i];
    return n > MOST_LINKS ? MOST_LINKS : n;
}

/* the card at the other end, or SIM_CARDS for the switch */
static unsigned far_end(unsigned card, unsigned link) {
    for (unsigned i = 0; i < sim_config()->machine.count; i++) {
        if (link < sim_config()->machine.links[card][i])
            return i;
        link -= sim_config()->machine.links[card][i];
    }
    return SIM_CARDS;
}

#define LINK(d, link, out)                                                                                   \
    DEVICE(card, d, out);                                                                                    \
    if (link >= MOST_LINKS)                                                                                  \
        return NVML_ERROR_INVALID_ARGUMENT;                                                                  \
    if (link >= links((d)->card))                                                                            \
    return NVML_ERROR_NOT_SUPPORTED

ENTRY nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned link, unsigned *out) {
    LINK(d, link, out);
    *out = 1;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkVersion(nvmlDevice_t d, unsigned link, unsigned *out) {
    LINK(d, link, out);
    *out = 4;
    return NVML_SUCCESS;
}

/* capabilities: 0 peer access, 1 system memory, 2 and 3 atomics, 4 SLI, 5 valid */
ENTRY nvmlDeviceGetNvLinkCapability(nvmlDevice_t d, unsigned link, unsigned capability, unsigned *out) {
    LINK(d, link, out);
    if (capability > 5)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = capability != 1 && capability != 4;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned link, struct pci_info *out) {
    LINK(d, link, out);
    unsigned other = far_end(d->card, link);
    if (other < SIM_CARDS) {
        sim_nvml_pci(&sim_config()->machine.card[other], out);
        return NVML_SUCCESS;
    }
    struct sim_card nvswitch = {.bus = 0xf0};
    sim_nvml_pci(&nvswitch, out);
    return NVML_SUCCESS;
}
SAME(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2);

ENTRY nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned link, unsigned *out) {
    LINK(d, link, out);
    *out = far_end(d->card, link) < SIM_CARDS ? TO_CARD : TO_SWITCH;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t d, unsigned link, unsigned counter,
                                      unsigned long long *out) {
    LINK(d, link, out);
    *out = 0;
    return NVML_SUCCESS;
}

/* ---- peer access: 0 OK, 1 chip set not supported, 5 not supported ----------------------------------------
 */

ENTRY nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned what, unsigned *out) {
    DEVICE(card, a, out);
    if (!sim_handle_valid(b) || a == b || what > 5)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool linked = sim_config()->machine.nvswitch || sim_config()->machine.links[a->card][b->card];
    bool peers = sim_config()->machine.p2p[a->card][b->card];
    bool needs_link = what == 2 || what == 3; /* NVLink, atomics; the rest: read, write, PCI */
    *out = needs_link && !linked ? 5 : peers ? 0 : 1;
    return NVML_SUCCESS;
}

/* ---- NUMA ---------------------------------------------------------------------------------------------- */

ENTRY nvmlDeviceGetNumaNodeId(nvmlDevice_t d, unsigned *out) {
    DEVICE(card, d, out);
    if (card->numa < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *out = (unsigned)card->numa;
    return NVML_SUCCESS;
}

ENTRY nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned size, unsigned long *out, unsigned scope) {
    DEVICE(card, d, out);
    if (size == 0 || scope > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (card->numa < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, size * sizeof *out);
    if ((unsigned)card->numa < size * 64)
        out[card->numa / 64] = 1ul << (card->numa % 64);
    return NVML_SUCCESS;
}

/* the simulated sockets have no processors of their own: every card is near all */
ENTRY nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t d, unsigned size, unsigned long *out, unsigned scope) {
    DEVICE(card, d, out);
    long n = sysconf(_SC_NPROCESSORS_CONF);
    memset(out, 0, size * sizeof *out);
    for (long i = 0; i < n && i < (long)size * 64; i++)
        out[i / 64] |= 1ul << (i % 64);
    return NVML_SUCCESS;
}
ENTRY nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned size, unsigned long *out) {
    return nvmlDeviceGetCpuAffinityWithinScope(d, size, out, 0);
}
