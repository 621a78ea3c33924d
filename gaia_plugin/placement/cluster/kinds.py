"""What each node would be like for one kind of ask; looked at again only where a node changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gaia_plugin.placement.cluster.ask import Ask
from gaia_plugin.placement.cluster.classes import ROW, WHOLE, Bools, Ints, Shape
from gaia_plugin.placement.cluster.links import closest
from gaia_plugin.placement.cluster.rooms import Rooms
from gaia_plugin.placement.cluster.steps import steps
from gaia_plugin.placement.cluster.worth import Worth

_NEVER: Final = 1 << 40
"""The cost of a card that is too small; above that of any number of cards."""

_MANY: Final = 64
"""Nodes from which on it pays to find out which are in the same state."""

_CPU_OF_A_CARD: Final = 16_000
"""Thousandths of a core that weigh as much as a card in best fit: 8 cards as much as 128 cores."""


@dataclass
class Kind:
    """One kind of ask against all nodes, by row.

    Args:
        shapes: what each of its requests takes of a card.
        first: the request that the node is chosen by: the one with most cards, then the largest.
    """

    ask: Ask
    shapes: tuple[Shape, ...]
    first: Shape | None
    seen: int = -1
    """The clock of the rooms when this was last brought up to date."""
    fits: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    step: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Cost in steps; see `steps`."""
    over: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """What would be left over, for best fit."""
    opened: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Idle cards that would be in use then."""
    level: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """The closest level that cards for it share there."""

    @classmethod
    def of(cls, ask: Ask, rooms: Rooms) -> Kind:
        """Prepare a kind; nothing is known of any node yet."""
        shapes = tuple(rooms.classes.shape(request) for request in ask.requests)
        return cls(ask, shapes, min(shapes, key=lambda shape: shape.order, default=None))

    def refresh(self, rooms: Rooms, worth: Worth) -> None:
        """Look at the nodes that changed since the last call."""
        if self.fits.size != rooms.rows:
            self._widen(rooms.rows)
        if self.seen == rooms.clock:
            return
        rows = np.flatnonzero(rooms.changed > self.seen)
        self.seen = rooms.clock
        if rows.size < _MANY:
            self._look(rooms, worth, rows)
            return
        # Many nodes are in the same state, such as idle: each state is looked at once.
        _, first, which = np.unique(rooms.state[rows], return_index=True, return_inverse=True)
        some = rows[first]
        self._look(rooms, worth, some)
        for array in (self.fits, self.step, self.over, self.opened, self.level):
            array[rows] = array[some][which]

    def _look(self, rooms: Rooms, worth: Worth, rows: NDArray[np.intp]) -> None:
        """Look at some nodes."""
        fits = rooms.live[rows] & (rooms.cpu[rows] >= self.ask.cpu) & (rooms.memory[rows] >= self.ask.memory)
        of_first = None
        for shape in self.shapes:
            cards = fitting(rooms, rows, shape)
            fits &= _number(cards) >= shape.count
            if shape is self.first:
                of_first = cards
        if len(self.shapes) > 1 and fits.any():
            fits &= self._together(rooms, rows)
        self.fits[rows] = fits
        if fits.any():
            self._measure(rooms, worth, rows[fits], None if of_first is None else of_first[:, fits])

    def _together(self, rooms: Rooms, rows: NDArray[np.intp]) -> Bools:
        """Tell whether all requests may fit beside each other: whole cards by number, all by their sums.

        Choosing cards tells for certain, and takes a hundred times as long.
        """
        whole = sum(shape.count for shape in self.shapes if shape.whole)
        units = sum(shape.count * int(shape.units[shape.able].min()) for shape in self.shapes)
        cores = sum(shape.count * int(shape.cores[shape.able].min()) for shape in self.shapes)
        together: Bools = rooms.whole[rows] >= whole
        together &= rooms.units[:, rows].sum(axis=0) >= units
        together &= rooms.cores[:, rows].sum(axis=0) >= cores
        return together

    def _widen(self, rows: int) -> None:
        def longer(array: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.concatenate((array, np.zeros(rows - array.size, array.dtype)))

        for name in ("fits", "step", "over", "opened", "level"):
            setattr(self, name, longer(getattr(self, name)))

    def _measure(self, rooms: Rooms, worth: Worth, rows: NDArray[np.intp], cards: Bools | None) -> None:
        """Fill in what a placement would cost on nodes where it fits, on the cards that it fits."""
        shape = self.first
        room, kind = rooms.room[rows], rooms.kind[rows]
        left = rooms.left[rows]
        if shape is not None and cards is not None:
            room = room - _cheapest(rooms, worth, rows, shape, cards)
            left = left - shape.count * (shape.percent + shape.cores)[kind]
            in_use = _number(cards & ~rooms.idle[:, rows])
            self.opened[rows] = np.maximum(0, shape.count - in_use)
            if shape.count > 1:
                self._find_levels(rooms, rows, cards, shape.count)
        cpu, memory = rooms.cpu[rows] - self.ask.cpu, rooms.memory[rows] - self.ask.memory
        after = worth.of(room, cpu, memory, kind)
        self.step[rows] = steps(rooms.worth[rows] - after)
        self.over[rows] = cpu * (2 * WHOLE) + left * _CPU_OF_A_CARD

    def _find_levels(self, rooms: Rooms, rows: NDArray[np.intp], cards: Bools, count: int) -> None:
        """Fill in levels; machines that are built alike and have the same cards free are looked at once."""
        alike = np.column_stack((rooms.mesh[rows], np.packbits(cards, axis=0).T))
        _, first, which = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        levels = [
            closest(rooms.meshes[int(rooms.mesh[rows[i]])], np.flatnonzero(cards[:, i]).tolist(), count)
            for i in first
        ]
        self.level[rows] = np.array(levels, np.int64)[which.ravel()]


def fitting(rooms: Rooms, rows: NDArray[np.intp], shape: Shape) -> Bools:
    """Return which cards of which rows could take a part of the request; shape (cards, rows)."""
    kind = rooms.card_kind[:, rows]
    fits: Bools = rooms.units[:, rows] >= np.where(shape.able, shape.units, _NEVER)[kind]
    fits &= rooms.cores[:, rows] >= shape.cores[kind]
    return fits


def _number(cards: Bools) -> Ints:
    """Return how many cards of each row are meant."""
    number: Ints = cards.sum(axis=0, dtype=np.int64)
    return number


def _cheapest(rooms: Rooms, worth: Worth, rows: NDArray[np.intp], shape: Shape, cards: Bools) -> Ints:
    """Return what the cards that lose least by the request lose together, in millionths of a card."""
    place = rooms.place[:, rows]
    taken = (shape.units * ROW + shape.cores)[rooms.card_kind[:, rows]]
    after = np.where(cards, place - taken, 0)
    cost = np.where(cards, worth.cards[place] - worth.cards[after], _NEVER)
    if shape.count == 1:
        least: Ints = cost.min(axis=0)
        return least
    together: Ints = np.sort(cost, axis=0)[: shape.count].sum(axis=0)
    return together
