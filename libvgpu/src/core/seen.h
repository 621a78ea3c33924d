/* seen.h - which stretches of a card's time the slot has paid already. Kernels of several streams or of
 * several processes of a slot are on the card at the same time, each process measures from its launch to
 * its end, and what the card was busy with two of them is to be paid once.
 *
 * Time is looked at in points, one somewhere in each 131 us. Each word holds 48 of them and the number of
 * its turn (16 bits), so every update is one compare-and-swap of one word, and a process killed between two
 * words has paid for some of its points: nothing to repair. All words together reach 94 ms back. */
#ifndef GAIA_SEEN_H
#define GAIA_SEEN_H

#include "core/atomic.h"

/* Mark what lies between START and END (CLOCK_MONOTONIC ns); how much of it nobody had marked yet. Right on
 * the average: a stretch shorter than the distance of two points counts for nothing or for the whole of
 * it. What is longer ago than the words reach is taken for not yet paid. */
uint64_t gaia_seen_add(gaia_word seen[GAIA_SEEN], uint64_t start, uint64_t end);

#endif
