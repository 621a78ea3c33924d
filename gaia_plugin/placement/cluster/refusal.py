"""Why no node takes an ask, in one sentence with the number that would have worked.

Only one node is looked at closely, the one that comes nearest, so that a refusal costs no more than an
answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.placement.cluster.classes import WHOLE, Ints, Shape
from gaia_plugin.placement.cluster.kinds import Kind, fitting
from gaia_plugin.placement.cluster.rooms import Rooms
from gaia_plugin.placement.model import CardState, Request
from gaia_plugin.placement.refusals import refuse
from gaia_plugin.placement.rules import cards_wanted, find_fault
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD, MIB, format_memory

_MOST_CARDS: Final = 16
_ANY: Final = CardState("", "", Share(1, CORES_PER_CARD), Share(1, CORES_PER_CARD))


def refusal(kind: Kind, rooms: Rooms, rows: NDArray[np.intp]) -> Refusal:
    """Say why none of these nodes takes an ask that none of them takes."""
    if not rows.size:
        return Refusal(Code.UNAVAILABLE, "There is no node here that shares its GPUs.")
    shape = kind.first
    if shape is None:
        return _host(kind, rooms, rows)
    able = fitting(rooms, rows, shape).sum(axis=0) >= shape.count
    if not able.any():
        return _cards(kind, rooms, rows, shape)
    if not _roomy(kind, rooms, rows[able]).any():
        return _host(kind, rooms, rows[able])
    return Refusal(
        Code.CARD_FULL,
        "The pod's containers fit one by one, but not all on one node now: make one of their slices smaller.",
    )


def _roomy(kind: Kind, rooms: Rooms, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    roomy: NDArray[np.bool_] = (rooms.cpu[rows] >= kind.ask.cpu) & (rooms.memory[rows] >= kind.ask.memory)
    return roomy


def _cards(kind: Kind, rooms: Rooms, rows: NDArray[np.intp], shape: Shape) -> Refusal:
    """Refuse for the cards, as the node that comes nearest would."""
    request = kind.ask.requests[kind.shapes.index(shape)]
    if not shape.able.any():
        return refuse(request, _one_of_each(rooms, request))
    order = (rooms.rank[rows], -_largest(rooms, rows, shape), -_most_cards(rooms, rows, shape))
    nearest = rooms.nodes[int(rows[np.lexsort(order)[0]])]
    return refuse(request, nearest.cards if nearest is not None else ())


def _one_of_each(rooms: Rooms, request: Request) -> list[CardState]:
    """Return idle cards of each class there is, as many as a request could want."""
    number = min(max(1, cards_wanted(request)), _MOST_CARDS) if find_fault(request, _ANY) is None else 1
    present = sorted(rooms.classes.all[kind] for kind, cards in rooms.size_of.items() if kind and cards)
    return [replace(kind.example, uuid=f"{kind.model} {i}") for kind in present for i in range(number)]


def _most_cards(rooms: Rooms, rows: NDArray[np.intp], shape: Shape) -> Ints:
    """Return how many cards that could do when idle each node has, up to those wanted."""
    able = shape.able[rooms.card_kind[:, rows]]
    could: Ints = np.minimum(able.sum(axis=0), shape.count)
    free: Ints = np.minimum(fitting(rooms, rows, shape).sum(axis=0), shape.count)
    return could * (shape.count + 1) + free


def _largest(rooms: Rooms, rows: NDArray[np.intp], shape: Shape) -> Ints:
    """Return the percent that is free on the card of each node that has most."""
    kinds = rooms.card_kind[:, rows]
    capacity = np.array([max(1, kind.units) for kind in rooms.classes.all])[kinds]
    percent = np.minimum(rooms.units[:, rows] * WHOLE // capacity, rooms.cores[:, rows])
    largest: Ints = np.where(shape.able[kinds], percent, 0).max(axis=0)
    return largest


def _host(kind: Kind, rooms: Rooms, rows: NDArray[np.intp]) -> Refusal:
    """Refuse for the host: the cards would do."""
    ask = kind.ask
    # The node that has the larger part of what it lacks most.
    parts = np.minimum(rooms.cpu[rows] / max(1, ask.cpu), rooms.memory[rows] / max(1, ask.memory))
    nearest = int(rows[np.lexsort((rooms.rank[rows], -parts))[0]])
    beside = " beside cards for it" if ask.requests else ""
    return Refusal(
        Code.CARD_FULL,
        f"No node has {_host_text(ask.cpu, ask.memory)} free{beside} now: the nearest has "
        f"{_host_text(int(rooms.cpu[nearest]), int(rooms.memory[nearest]))}.",
    )


def _host_text(cpu: int, memory: int) -> str:
    cores = f"{cpu // 1000}" if cpu % 1000 == 0 else f"{cpu / 1000:.3f}".rstrip("0")
    return f"{cores} CPU and {format_memory(memory * MIB)} of memory"
