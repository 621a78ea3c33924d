"""Which devices the kubelet is told of, and which of them it may hand out. Pure, but for what it remembers.

What is free is what the ledger has, not the IDs that are left: slots grow and shrink while their IDs stay,
and a pod that asks for memory alone has cores, too. A card that is sick or lost takes as many of the free
devices out of use as it has units; a device in use stays listed and healthy until its container is gone,
for else the kubelet fails the pod for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass

from gaia_plugin.agent.pods.identity import Owner
from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.plugin import Device
from gaia_plugin.ledger import CardCapacity, SlotRecord
from gaia_plugin.ledger.allocations import Allocation
from gaia_plugin.shares import NOTHING, Share


@dataclass(frozen=True, slots=True)
class Lists:
    """The devices of both resources."""

    memory: tuple[Device, ...]
    cores: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Out:
    """IDs of one resource that the kubelet has handed out; for those in `waiting` there is no slot yet."""

    in_use: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Figures:
    """All that a list depends on: how many devices, how many free ones are healthy, which are out."""

    total: int
    free: int
    in_use: frozenset[str]


def out(rows: Iterable[Allocation], resource: str, settled: Set[Owner]) -> Out:
    """Return what is out of one resource.

    Args:
        rows: all allocations, newest first. The newest one with an ID says whether it has a slot, for what
            nobody came for lies there for a while.
        resource: its full name.
        settled: containers that have a slot, and those that have ended and need none.
    """
    in_use: set[str] = set()
    waiting: set[str] = set()
    for row in rows:
        if row.resource == resource:
            if Owner(row.uid, row.container) not in settled:
                waiting |= row.ids - in_use
            in_use |= row.ids
    return Out(frozenset(in_use), frozenset(waiting))


def figures(
    cards: Collection[CardCapacity], slots: Iterable[SlotRecord], memory: Out, cores: Out, foreign: int = 0
) -> tuple[Figures, Figures]:
    """Return what the lists of memory and of cores depend on.

    Args:
        cards: all that are known, lost ones included.
        slots: all that the ledger has.
        memory: what is out of memory.
        cores: what is out of cores.
        foreign: units in use by nobody's slot.
    """
    held = sum((record.held for record in slots), NOTHING)
    known = [card for card in cards if card.units]  # one that tells no memory has no cores either
    every, well = _sum(known), _sum(card for card in known if card.healthy)
    return (
        Figures(
            every.units,
            advertise.healthy_free(well.units, held.units + foreign, len(memory.waiting)),
            memory.in_use,
        ),
        Figures(
            every.cores,
            advertise.healthy_free(well.cores, held.cores, len(cores.waiting)),
            cores.in_use,
        ),
    )


def _sum(cards: Iterable[CardCapacity]) -> Share:
    return sum((Share(card.units, card.cores) for card in cards), NOTHING)


class Advertiser:
    """Makes the lists anew only when what they depend on has changed.

    Args:
        memory: full name of the resource for memory.
        cores: of that for cores.
    """

    def __init__(self, memory: str, cores: str) -> None:
        self._names = (memory, cores)
        self._known: tuple[tuple[Figures, Figures], Lists] | None = None

    def lists(
        self,
        cards: Collection[CardCapacity],
        rows: Collection[Allocation],
        slots: Collection[SlotRecord],
        ended: Set[Owner] = frozenset(),
        foreign: int = 0,
    ) -> Lists:
        """Return what is advertised; the same object as before when nothing has changed.

        Args:
            cards: all that are known, lost ones included.
            rows: all allocations, newest first.
            slots: all that the ledger has.
            ended: containers that have ended for good.
            foreign: units in use by nobody's slot.
        """
        settled = ended | {Owner(record.owner, record.name) for record in slots}
        memory, cores = (out(rows, name, settled) for name in self._names)
        now = figures(cards, slots, memory, cores, foreign)
        if self._known is None or self._known[0] != now:
            self._known = (
                now,
                Lists(_devices(advertise.memory_id, now[0]), _devices(advertise.core_id, now[1])),
            )
        return self._known[1]


def _devices(name: advertise.Name, figures: Figures) -> tuple[Device, ...]:
    return advertise.devices(name, figures.total, figures.free, figures.in_use)
