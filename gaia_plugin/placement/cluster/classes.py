"""Kinds of cards in the fleet, and what a request means on each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gaia_plugin.placement.cluster.packing import Size
from gaia_plugin.placement.model import CardState, Request
from gaia_plugin.placement.rules import accepts, cards_wanted, find_fault, normalise
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WHOLE: Final = 100
"""Percent."""

ROW: Final = CORES_PER_CARD + 1
"""Places in a worth table for each unit of memory."""


_MOST_SHAPES: Final = 20_000
"""Requests whose meaning is remembered: more than a mix has."""


@dataclass(frozen=True, slots=True, order=True)
class CardClass:
    """Cards alike: the same model with the same memory, in units."""

    model: str
    units: int

    @property
    def size(self) -> Size:
        """Return what an idle card of this class has."""
        return self.units, CORES_PER_CARD

    @property
    def example(self) -> CardState:
        """Return an idle card of this class."""
        whole = Share(self.units, CORES_PER_CARD)
        return CardState("", self.model, whole, whole)


NO_CARD: Final = CardClass("", 0)
"""Fills the places of nodes with fewer cards than the widest; nothing fits there."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a request takes of each card, class by class.

    Args:
        count: distinct cards.
        able: by class, whether an idle card of it would do.
        units, cores: by class, what is taken of a card, also where the model would not do; 0 where it
            is more than the card has.
    """

    count: int
    able: Bools
    units: Ints
    cores: Ints
    percent: Ints
    """By class, percent of the card's memory, rounded up."""

    def size(self, kind: int) -> Size | None:
        """Return what is taken of a card of a class; None where it is more than the card has."""
        units = int(self.units[kind])
        return (units, int(self.cores[kind])) if units else None

    @property
    def whole(self) -> bool:
        """Tell whether it takes all of each card wherever it would do."""
        return bool((self.percent[self.able] + self.cores[self.able] == WHOLE + CORES_PER_CARD).all())

    @property
    def amount(self) -> int:
        """Return percent of a card that are taken in all, of the scarcer, on the cards where that is most."""
        if not self.able.any():
            return 0
        return self.count * int(np.maximum(self.percent, self.cores)[self.able].max())

    @property
    def order(self) -> tuple[int, int]:
        """Return the place of the request among those of a pod: most cards first, then the largest."""
        return -self.count, -int((self.percent + self.cores).max())

    @property
    def accepted(self) -> frozenset[int]:
        """Return the classes that would do."""
        return frozenset(np.flatnonzero(self.able).tolist())


class Classes:
    """The classes seen so far, numbered in that order; number 0 is `NO_CARD`."""

    def __init__(self) -> None:
        self.all: list[CardClass] = [NO_CARD]
        self.base: list[int] = [0]
        """Where the worth table of each class begins, all tables being one behind the other."""
        self._end = ROW
        self._number: dict[CardClass, int] = {NO_CARD: 0}
        self._shapes: dict[Request, Shape] = {}

    def __len__(self) -> int:
        return len(self.all)

    @property
    def places(self) -> int:
        """Return how long the worth tables of all classes are together."""
        return self._end

    def copy(self) -> Classes:
        """Return classes of their own with the same numbers."""
        found = Classes()
        for kind in self.all[1:]:
            found.number(kind.example)
        return found

    def number(self, card: CardState) -> int:
        """Return the number of a card's class; a new one, if none is like it."""
        kind = CardClass(card.model, max(0, card.capacity.units))
        found = self._number.get(kind)
        if found is None:
            found = self._number[kind] = len(self.all)
            self.all.append(kind)
            self.base.append(self._end)
            self._end += (kind.units + 1) * ROW
            self._shapes.clear()
        return found

    def shape(self, request: Request) -> Shape:
        """Say what a request takes of a card of each class; nothing would do for one without meaning."""
        found = self._shapes.get(request)
        if found is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            found = self._shapes[request] = self._shape(request)
        return found

    def _shape(self, request: Request) -> Shape:
        count = len(self.all)
        able = np.zeros(count, np.bool_)
        units, cores, percent = (np.zeros(count, np.int64) for _ in range(3))
        for i, kind in enumerate(self.all):
            example = kind.example
            if kind.units < 1 or find_fault(request, example) is not None:
                continue
            share = normalise(request, example)
            if share.fits(example.free):
                able[i] = accepts(request.models, kind.model)
                units[i], cores[i] = share.units, share.cores
                percent[i] = -(-WHOLE * share.units // kind.units)
        return Shape(cards_wanted(request) if units.any() else 1, able, units, cores, percent)
