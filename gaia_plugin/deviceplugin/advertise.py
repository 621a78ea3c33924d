"""What the kubelet is told there is: device IDs, and how many of them it may hand out.

IDs are counters over the node and carry no card. They are the same after each restart, because the
kubelet knows a container's devices by nothing else. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import count
from typing import Final

from gaia_plugin.deviceplugin.plugin import UNHEALTHY, Device
from gaia_plugin.errors import Unusable
from gaia_plugin.units import MEMORY_UNIT, MIB

LARGEST_LIST: Final = 4 << 20
"""Bytes of one message that the kubelet takes; a larger list leaves the node at 0 without a word."""

Name = Callable[[int], str]


def memory_id(number: int) -> str:
    """Return the ID of a node's memory unit `number`, from 0."""
    return f"mem-{number:05d}"


def core_id(number: int) -> str:
    """Return the ID of a node's core `number`, from 0."""
    return f"core-{number:03d}"


def memory_ids(units: int) -> tuple[str, ...]:
    """Return the IDs of `units` units of memory."""
    return tuple(map(memory_id, range(units)))


def core_ids(cores: int) -> tuple[str, ...]:
    """Return the IDs of `cores` cores."""
    return tuple(map(core_id, range(cores)))


def healthy_free(total: int, held: int, waiting: int) -> int:
    """Return how many IDs that nobody has may be handed out.

    Args:
        total: units, or cores, of all healthy cards.
        held: sum over all slots, with IDs or without.
        waiting: IDs handed out that have no slot yet.
    """
    return max(0, total - held - waiting)


def devices(name: Name, total: int, free: int, in_use: Set[str]) -> tuple[Device, ...]:
    """Return the list to advertise for one resource, sorted by ID.

    An ID in use stays listed and healthy until its container is gone; else a restart of the container
    fails for good. Of the IDs that nobody has, the first `free` are healthy. The rest, up to `total`, is
    listed as unhealthy; where slots gave units back while their IDs stay out, IDs past `total` appear.

    Args:
        name: `memory_id` or `core_id`.
        total: units or cores that the node has.
        free: IDs that nobody has and that may be handed out, from `healthy_free`.
        in_use: IDs that the kubelet has handed out.
    """
    listed = [Device(each) for each in in_use]
    for number in count():
        if number >= total and free <= 0:
            break
        each = name(number)
        if each not in in_use:
            listed.append(Device(each, free > 0))
            free -= 1
    return tuple(sorted(listed, key=lambda device: device.id))


def check_size(memory_units: int, unit: int = MEMORY_UNIT) -> None:
    """Make sure that the list of memory fits into one message to the kubelet.

    Args:
        memory_units: units of all cards of the node.
        unit: bytes in one unit.

    Raises:
        Unusable: it does not fit; the sentence names a unit that does.
    """
    if _list_bytes(memory_units) <= LARGEST_LIST:
        return
    fits, units = unit, memory_units
    while _list_bytes(units) > LARGEST_LIST:
        fits, units = 2 * fits, -(-units // 2)
    raise Unusable(
        f"With units of {unit // MIB} MiB this node has {memory_units} device IDs: a list of "
        f"{_list_bytes(memory_units) / MIB:.1f} MiB, and the kubelet takes no message above "
        f"{LARGEST_LIST // MIB} MiB. A unit of {fits // MIB} MiB fits."
    )


def _list_bytes(units: int) -> int:
    """Return the bytes of the longest list: all units handed out and given back, so as many again free."""
    longest = 2 * units
    # a Device is a tag and a length around two strings, which have a tag and a length each
    return longest * (6 + len(memory_id(max(0, longest - 1))) + len(UNHEALTHY))
