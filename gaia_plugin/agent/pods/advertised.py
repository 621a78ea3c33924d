"""Which devices the kubelet is told of, and which of them it may hand out. Pure.

A card that is sick or lost takes as many of the free devices out of use as it has units; a device in
use stays listed and healthy until its container is gone, for else the kubelet fails the pod for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.plugin import Device
from gaia_plugin.ledger import CardCapacity


@dataclass(frozen=True, slots=True)
class Lists:
    """The devices of both resources."""

    memory: tuple[Device, ...]
    cores: tuple[Device, ...]


def lists(cards: Iterable[CardCapacity], memory_in_use: Set[str], cores_in_use: Set[str]) -> Lists:
    """Return what is advertised for the node's cards.

    Args:
        cards: all that are known, lost ones included.
        memory_in_use: IDs of memory that the kubelet has handed out.
        cores_in_use: the same of cores.
    """
    known = list(cards)
    well = [card for card in known if card.healthy]
    units, cores = sum(card.units for card in known), sum(card.cores for card in known if card.units)
    free_units = max(0, sum(card.units for card in well) - len(memory_in_use))
    free_cores = max(0, sum(card.cores for card in well if card.units) - len(cores_in_use))
    return Lists(
        advertise.devices(advertise.memory_id, units, free_units, memory_in_use),
        advertise.devices(advertise.core_id, cores, free_cores, cores_in_use),
    )
