/* visible.c - CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, by the driver's published rules: indices in
 * CUDA's order or UUIDs, also shortened while unambiguous; the first invalid entry ends the list. */
#include "cuda.h"
#include <ctype.h>
#include <stdlib.h>

/* NVML and PCI_BUS_ID order are the configuration's; CUDA's own is fastest first. */
static void order(unsigned cards[SIM_CARDS], unsigned n) {
    const struct sim_config *c = sim_config();
    const char *wish = getenv("CUDA_DEVICE_ORDER");
    for (unsigned i = 0; i < n; i++)
        cards[i] = i;
    if (wish && strcmp(wish, "PCI_BUS_ID") == 0)
        return;
    for (unsigned i = 1; i < n; i++)
        for (unsigned j = i; j > 0 && c->machine.card[cards[j]].speed > c->machine.card[cards[j - 1]].speed;
             j--) {
            unsigned swap = cards[j];
            cards[j] = cards[j - 1];
            cards[j - 1] = swap;
        }
}

static int by_uuid(const char *entry, size_t length, const unsigned *cards, unsigned n) {
    char text[41];
    int found = -1;
    for (unsigned i = 0; i < n; i++) {
        sim_uuid_text(sim_config()->machine.card[cards[i]].uuid, text);
        if (length > 40 || strncasecmp(text, entry, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int)cards[i];
    }
    return found;
}

static int by_index(const char *entry, size_t length, const unsigned *cards, unsigned n) {
    unsigned long index = 0;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)entry[i]) || index > SIM_CARDS)
            return -1;
        index = index * 10 + (unsigned long)(entry[i] - '0');
    }
    return length > 0 && index < n ? (int)cards[index] : -1;
}

int sim_visible(unsigned out[SIM_CARDS]) {
    unsigned all[SIM_CARDS], n = sim_config()->machine.count;
    const char *p = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    order(all, n);
    if (!p) {
        memcpy(out, all, sizeof all);
        return (int)n;
    }
    for (;; p++) {
        while (isspace((unsigned char)*p))
            p++;
        size_t length = strcspn(p, ",");
        const char *next = p + length;
        while (length > 0 && isspace((unsigned char)p[length - 1]))
            length--;
        int card = strncmp(p, "GPU-", 4) == 0 ? by_uuid(p, length, all, n) : by_index(p, length, all, n);
        if (card < 0)
            return count;
        for (int i = 0; i < count; i++)
            if (out[i] == (unsigned)card)
                return 0; /* a card named twice: the driver shows none */
        out[count++] = (unsigned)card;
        p = next;
        if (*p != ',')
            return count;
    }
}
