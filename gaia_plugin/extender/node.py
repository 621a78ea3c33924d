"""One node as the extender sees it: what is free on its cards once everything that counts is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from gaia_plugin.counted import Holder, counted
from gaia_plugin.errors import Refusal
from gaia_plugin.extender.fit import Parts, Placed, parts_of, without
from gaia_plugin.extender.heartbeat import Beat
from gaia_plugin.gpu.topology import Level, Tie, Topology
from gaia_plugin.kube import gpunode
from gaia_plugin.kube.gpunode import GpuNode
from gaia_plugin.kube.placement import Ignored, placed
from gaia_plugin.kube.pods import DOMAIN, Pod, container_ended, holders
from gaia_plugin.kube.wishes import wish_of
from gaia_plugin.placement import CardState, place
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import CORES_PER_CARD

_LEVELS: Final = {"NUMA": Level.NUMA, "Switch": Level.SWITCH, "NVLink": Level.NVLINK}

_MOST_UNITS: Final = 4096
"""Of a card, 1 TiB: placement has a table of all amounts, and an agent that is wrong must not fill memory."""

Booked = Mapping[Holder, Parts]


class Bound(NamedTuple):
    """A pod that is bound to a node, and those of its containers that hold a slice and have not ended."""

    pod: Pod
    containers: tuple[str, ...]


class CardClasses:
    """Gives each model and size of card a number, so that a request is looked at once for each of them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int, int], int] = {}
        self.examples: list[CardState] = []

    def number(self, card: CardState) -> int:
        """Return the number of a card's class."""
        key = (card.model, card.capacity.units, card.capacity.cores)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.examples)
            self.examples.append(CardState("", card.model, card.capacity, card.capacity))
        return found


@dataclass(slots=True, eq=False)
class Node:
    """A node. `machine`: the cluster has a Node of that name; `cards` counts everything, see `count`."""

    name: str
    machine: bool = False
    gpunode: GpuNode | None = None
    beat: Beat | None = None
    bound: dict[str, Bound] = field(default_factory=dict)
    """Pods bound here of which a container has not ended, by UID."""
    pending: dict[str, Booked] = field(default_factory=dict)
    """Binds under way of this process, by UID of the pod."""
    cards: tuple[CardState, ...] = ()
    known: frozenset[Holder] = frozenset()
    """Containers that have a slot, a reservation or a bind under way here."""
    built: tuple[int, ...] = ()
    """The classes of its healthy cards, see `CardClasses`: the same for nodes that are built alike."""
    idle: int = 0
    """How many healthy cards have nothing on them."""
    largest: tuple[int, int, int] = (0, 0, 0)
    """Of the card that could give the largest slice: percent of it, units, cores; none if all is 0."""
    topology: Topology = field(default_factory=Topology)
    """How its cards are linked; another object once that has changed."""

    @property
    def ready(self) -> bool:
        """Tell whether its agent says that it takes pods."""
        return self.gpunode is not None and self.gpunode.status.ready

    def put(self, cards: tuple[CardState, ...], classes: CardClasses) -> None:
        """Take in what is free now."""
        self.cards = cards
        healthy = [card for card in cards if card.healthy]
        self.built = tuple(classes.number(card) for card in healthy)
        self.idle = sum(card.idle for card in healthy)
        self.largest = max((slice_of(card) for card in healthy), default=(0, 0, 0))


def slice_of(card: CardState) -> tuple[int, int, int]:
    """Return how large a slice a card could give, the scarcer of memory and cores first; 0: none."""
    units, cores = card.free.units, card.free.cores
    if units < 1 or cores < 1:
        return (0, 0, 0)
    return (min(units * CORES_PER_CARD // card.capacity.units, cores), units, cores)


def topology_of(node: GpuNode) -> Topology:
    """Return how the cards of a node are linked."""
    return Topology.of(
        (card.uuid, link.card, _tie(link.level, link.links))
        for card in node.status.cards
        for link in card.links
        if link.card != card.uuid
    )


@lru_cache(maxsize=1024)
def _tie(level: str, links: int) -> Tie:
    return Tie(_LEVELS.get(level, Level.ANY), links)


class Counted(NamedTuple):
    """The cards of a node with what is free on them, and whom that takes account of by name."""

    cards: tuple[CardState, ...]
    known: frozenset[Holder]


def count(
    node: GpuNode,
    bound: Iterable[Bound] = (),
    pending: Mapping[str, Booked] | None = None,
    *,
    domain: str = DOMAIN,
    leave_out: str = "",
) -> Counted:
    """Count what is free on the cards of a node.

    Counted are slots and reservations by the rule that the agent uses, too; binds under way; and pods that
    are bound and have neither slot nor reservation (bound past this scheduler, or their reservation was
    lost): they by their placement annotation, without one by what the node would choose for them.

    Args:
        node: as it was read.
        bound: pods bound to it.
        pending: binds under way, by UID.
        domain: of resources and annotations.
        leave_out: UID of a pod whose reservations and binds count for nothing, because it is the one that
            is to be placed; a slot of it counts all the same.
    """
    held = gpunode.held(node.status.slots)
    booked: dict[Holder, Mapping[str, Share]] = {
        h: p for h, p in gpunode.reserved(node.spec.reservations).items() if h.uid != leave_out
    }
    for uid, parts in (pending or {}).items():
        if uid != leave_out:
            booked.update(parts)
    taken = counted(held, booked)
    cards: list[CardState] = []
    for card in node.status.cards:
        capacity = card.capacity.share
        free = capacity - taken.get(card.uuid, NOTHING)
        cards.append(CardState(card.uuid, card.model, capacity, free, card.healthy and _is_card(capacity)))
    untold = [
        (pod, name)
        for pod, names in bound
        if pod.uid != leave_out
        for name in names
        if (pod.uid, name) not in held and (pod.uid, name) not in booked
    ]
    for pod, name in sorted(untold, key=lambda each: (each[0].uid, each[1])):
        cards = _less(cards, pod, name, node, domain)
    return Counted(tuple(cards), frozenset((*held, *booked)))


def _is_card(capacity: Share) -> bool:
    return 0 < capacity.units <= _MOST_UNITS and capacity.cores == CORES_PER_CARD


def _less(cards: list[CardState], pod: Pod, name: str, node: GpuNode, domain: str) -> list[CardState]:
    """Take off what a container of a bound pod needs that nobody has told of yet."""
    try:
        request = wish_of(pod, name, domain=domain).request
        slices = placed(pod, name, request, cards, node=node.metadata.name, domain=domain)
        if isinstance(slices, Ignored):
            slices = place(request, cards, topology_of(node))
    except Refusal:
        return cards  # the agent refuses it as well, or finds no room, so it gets nothing
    return without(cards, slices)


def bound_of(pod: Pod, domain: str) -> Bound:
    """Return a pod with those of its containers that hold a slice and have not ended."""
    names = (each.name for each in holders(pod, domain))
    return Bound(pod, tuple(name for name in names if not container_ended(pod, name)))


def booked_by(uid: str, where: Placed) -> Booked:
    """Return a placement as what its containers book."""
    return {Holder(uid, container): parts_of(slices) for container, slices in where.items()}
