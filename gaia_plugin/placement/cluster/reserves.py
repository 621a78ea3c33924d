"""What is left alone for those who can take nothing else: whole sets of cards, and scarce models.

Without this the allocation looks better and the requests for many cards starve. A reserve is a wish,
never a refusal: where no other node would do, it yields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import fsum

import numpy as np

from gaia_plugin.placement.cluster.classes import WHOLE, Bools, Ints, Shape
from gaia_plugin.placement.cluster.kinds import Kind
from gaia_plugin.placement.cluster.mix import Seen
from gaia_plugin.placement.cluster.options import Options
from gaia_plugin.placement.cluster.rooms import Rooms

_MODEL_WEIGHS = 2
_SET_WEIGHS = 1


@dataclass
class Reserves:
    """The parts of the demand, by amount, that want sets of cards, or only some models.

    Args:
        sets: by number of whole cards.
        bound: by the classes that would do, where not all would.
    """

    options: Options
    sets: dict[int, float] = field(default_factory=dict)
    bound: dict[frozenset[int], float] = field(default_factory=dict)
    _narrower: dict[frozenset[int], dict[int, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, mix: Iterable[Seen], rooms: Rooms, options: Options) -> Reserves:
        """Read the demand off the mix."""
        everywhere = frozenset(kind for kind, cards in rooms.size_of.items() if kind and cards)
        sets: Counter[int] = Counter()
        bound: Counter[frozenset[int]] = Counter()
        asked = 0
        for seen in mix:
            shape = rooms.classes.shape(seen.request)
            amount, accepted = shape.amount * seen.times, shape.accepted
            asked += amount
            if shape.count > 1 and shape.whole:
                sets[shape.count] += amount
            if accepted and not everywhere <= accepted:
                bound[accepted] += amount
        return cls(
            options,
            {size: amount / asked for size, amount in sets.items() if amount},
            {classes: amount / asked for classes, amount in bound.items() if amount},
        )

    def left_alone(self, kind: Kind, rooms: Rooms, rows: Ints) -> Ints | None:
        """Return how much each node should be left to pickier asks; None where all are open."""
        shape = kind.first
        if shape is None or not (self.sets or self.bound):
            return None
        scarce = self._scarce(shape, rooms)
        broken = self._broken(shape, rooms)
        if scarce is None and broken is None:
            return None
        alone = np.zeros(rows.size, np.int64)
        if scarce is not None:
            alone += _MODEL_WEIGHS * scarce[rooms.kind[rows]]
        if broken is not None:
            alone += _SET_WEIGHS * broken[rooms.whole[rows], kind.opened[rows]]
        return alone

    def _scarce(self, shape: Shape, rooms: Rooms) -> Bools | None:
        """Return by class whether pickier requests will need what is free of it."""
        needed = self._needed(shape.accepted, rooms)
        if not needed:
            return None
        free = sum(rooms.free_of.values())
        scarce = np.zeros(len(rooms.classes), np.bool_)
        for kind, part in needed.items():
            scarce[kind] = rooms.free_of[kind] <= self.options.models_kept * part * free
        return scarce if scarce.any() else None

    def _needed(self, accepted: frozenset[int], rooms: Rooms) -> dict[int, float]:
        """Return by class the part of all demand that is bound to it and pickier than `accepted`."""
        found = self._narrower.get(accepted)
        if found is None:
            shares: dict[int, list[float]] = {}
            for classes, part in self.bound.items():
                if classes < accepted:
                    cards = max(1, sum(rooms.size_of[kind] for kind in classes))
                    for kind in classes:
                        shares.setdefault(kind, []).append(part * rooms.size_of[kind] / cards)
            # Added up exactly: classes are numbered in the order in which nodes came.
            found = self._narrower[accepted] = {kind: fsum(each) for kind, each in shares.items()}
        return found

    def _broken(self, shape: Shape, rooms: Rooms) -> Bools | None:
        """Return whether a set worth keeping is lost, by idle cards before and idle cards taken."""
        takes = shape.count if shape.whole else 1
        free = sum(rooms.free_of.values())
        most = max(rooms.sets)
        lost: Bools | None = None
        for size, part in self.sets.items():
            if size <= takes:
                continue
            kept = sum(nodes * (idle // size) for idle, nodes in rooms.sets.items()) * size * WHOLE
            if kept <= self.options.sets_kept * part * free:
                before, taken = np.ogrid[: most + 1, : most + 1]
                breaks: Bools = np.maximum(before - taken, 0) // size < before // size
                lost = breaks if lost is None else lost | breaks
        return lost
