"""Whether a pod fits on a node, and on which cards: the GPU Scheduler, container by container. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gaia_plugin.extender.demand import Demand
from gaia_plugin.gpu.topology import Topology
from gaia_plugin.placement import CardState, Slice, place
from gaia_plugin.placement.preference import Cost, binpack
from gaia_plugin.shares import NOTHING, Share

Placed = Mapping[str, tuple[Slice, ...]]
"""By container."""

Parts = dict[str, Share]
"""By card UUID."""


def fit(demand: Demand, cards: Sequence[CardState], topology: Topology, *, cost: Cost = binpack) -> Placed:
    """Return where the containers of a pod go on these cards.

    `cost` says which card is best for a pod of one container. Several are packed as tightly as can be,
    whatever the rule: what one leaves has to do for the next.

    Raises:
        Refusal: one of them finds no place beside the others; carries the best offer.
    """
    left, placed = list(cards), {}
    best = cost if len(demand.kind) == 1 else binpack
    for container, request in zip(demand.containers, demand.kind, strict=True):
        slices = place(request, left, topology, cost=best)
        placed[container] = slices
        left = without(left, slices)
    return placed


def without(cards: Iterable[CardState], slices: Iterable[Slice]) -> list[CardState]:
    """Return the cards with less free on them."""
    taken = parts_of(slices)
    return [
        replace(card, free=card.free - taken[card.uuid]) if card.uuid in taken else card for card in cards
    ]


def parts_of(slices: Iterable[Slice]) -> Parts:
    """Return slices by card."""
    found: Parts = {}
    for each in slices:
        found[each.card] = found.get(each.card, NOTHING) + each.share
    return found
