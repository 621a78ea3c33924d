"""What free room is worth to the usual mix, in millionths of a card.

Everything here is whole numbers: a node is worth the same whether it is looked at alone or among five
thousand, and whatever the processor, so that equal input gives an equal answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from gaia_plugin.placement.cluster.classes import ROW, WHOLE, CardClass, Classes, Ints, Shape
from gaia_plugin.placement.cluster.mix import Seen
from gaia_plugin.placement.cluster.options import Options
from gaia_plugin.placement.cluster.packing import Floats, Size, filling, prices

MICRO: Final = 1_000_000

_MOST_SIZES: Final = 48
"""Sizes of shares that are priced: the commonest. The cost of the prices grows with their cube."""

_MOST_CELLS: Final = 96
"""Kinds of request that a node is measured by: the commonest."""

_PARTS: Final = 1 << 16
"""The parts of the mix are counted in these."""

LARGEST_AMOUNT: Final = float(1 << 26)
"""Of a host's CPU (thousandths) and memory (MiB); more counts as this."""

_NOTHING: Final = 1e-6

_Cell = tuple[int, int, frozenset[int]]


class Tariff:
    """Prices on cards of one size."""

    def __init__(self, mix: Sequence[tuple[Seen, Shape]], number: int, card: CardClass) -> None:
        """Price what the mix asks on cards of the size of `card`, the class with that number."""
        self._card = card.size
        demand: Counter[Size] = Counter()
        for seen, shape in mix:
            # Priced as if every request could be had here: whom a card may serve is the reserves' matter.
            size = shape.size(number)
            if size not in (None, card.size):
                demand[size] += seen.times * shape.count
        commonest = sorted(demand.items(), key=lambda item: (-item[1], item[0]))[:_MOST_SIZES]
        self._prices = prices(dict(commonest), self._card)
        self.gaps = filling(self._prices, self._card)

    def price(self, size: Size) -> float:
        """Return what a share costs, in cards; one without a price, as the dearest set in its place."""
        if size[0] == self._card[0] or size[1] == self._card[1]:
            return 1.0
        return self._prices.get(size, float(self.gaps[size]))


class Worth:
    """The worth of a free amount of a card, and of a node."""

    def __init__(self, classes: Classes, mix: Iterable[Seen], options: Options) -> None:
        known = [(seen, classes.shape(seen.request)) for seen in mix]
        self._classes = classes
        self.cards: Ints = np.zeros(classes.places, np.int64)
        """By place: `Classes.base` of the card's class + free units x ROW + free cores."""
        tariffs: dict[int, Tariff] = {}
        for i, kind in enumerate(classes.all[1:], start=1):
            if kind.units:
                if kind.units not in tariffs:
                    tariffs[kind.units] = Tariff(known, i, kind)
                table = _table(tariffs[kind.units].gaps, kind, options)
                self.cards[classes.base[i] : classes.base[i] + table.size] = table
        self._cells = _Cells(classes, known, tariffs, options)

    def of(self, room: Ints, cpu: Ints, memory: Ints, kind: Ints) -> Ints:
        """Return what nodes are worth: the worth of their cards as far as their host can serve it.

        Args:
            room: sum of the worth of a node's cards.
            cpu, memory: free on the host.
            kind: the class of the node's cards.
        """
        return self._cells.worth(room, cpu, memory, kind)

    def loss(self, kind: int, free: tuple[int, int], taken: tuple[int, int]) -> int:
        """Return what a card is worth less when (units, cores) of its free ones are taken."""
        before = self._classes.base[kind] + free[0] * ROW + free[1]
        return int(self.cards[before] - self.cards[before - taken[0] * ROW - taken[1]])


def _table(gaps: Floats, kind: CardClass, options: Options) -> Ints:
    """Return the worth of each free amount of a card: flat, units x cores."""
    units, cores = np.arange(kind.units + 1), np.arange(ROW)
    part = np.minimum((units / kind.units)[:, None], (cores / WHOLE)[None, :])
    priced = gaps.copy()
    priced[-1, -1] = max(1.0, priced[-1, -1])
    worth = (1 - options.amount) * priced + options.amount * part
    worth[-1, -1] += options.opening
    whole: Ints = np.round(MICRO * worth).astype(np.int64).ravel()
    return whole


class _Cells:
    """The kinds of one-card request that make up most of the mix, and how much host each needs.

    By class of cards: how much worth of cards a unit of the host's CPU, or memory, can serve of each
    kind, and the kind's part of the mix. Floats that are whole numbers below 2**53 add up exactly, in
    whatever order numpy adds them.
    """

    def __init__(
        self,
        classes: Classes,
        mix: Sequence[tuple[Seen, Shape]],
        tariffs: dict[int, Tariff],
        options: Options,
    ) -> None:
        self._classes = classes
        self._of_class: list[tuple[Floats, Floats, Floats]] = []
        for number, kind in enumerate(classes.all):
            cells = self._commonest(number, mix, tariffs.get(kind.units), options)
            total = max(1, sum(times for _, times in cells))
            able = [(cpu, memory, times) for (cpu, memory, able), times in cells if number in able]
            cpu = np.array([MICRO / max(1, cpu) for cpu, _, _ in able])
            memory = np.array([MICRO / max(1, memory) for _, memory, _ in able])
            self._of_class.append((cpu, memory, np.array([float(t * _PARTS // total) for *_, t in able])))

    def _commonest(
        self, kind: int, mix: Sequence[tuple[Seen, Shape]], tariff: Tariff | None, options: Options
    ) -> list[tuple[_Cell, int]]:
        if tariff is None:
            return []
        cells: Counter[_Cell] = Counter()
        for seen, shape in mix:
            size = shape.size(kind)
            price = tariff.price(size) if size is not None and shape.count == 1 else 0.0
            if price > _NOTHING:
                cells[round(seen.cpu / price), round(seen.memory / price), shape.accepted] += seen.times
        ordered = sorted(cells.items(), key=lambda cell: (-cell[1], cell[0][:2], self._names(cell[0][2])))
        kept, covered = [], 0
        for cell in ordered[:_MOST_CELLS]:
            if covered >= options.popularity * cells.total():
                break
            kept.append(cell)
            covered += cell[1]
        return kept

    def _names(self, able: frozenset[int]) -> list[CardClass]:
        return sorted(self._classes.all[number] for number in able)

    def worth(self, room: Ints, cpu: Ints, memory: Ints, kind: Ints) -> Ints:
        found = np.zeros(room.size, np.int64)
        for number in np.flatnonzero(np.bincount(kind)).tolist():
            of_cpu, of_memory, part = self._of_class[number]
            rows = np.flatnonzero(kind == number)
            served = np.minimum(cpu[rows], LARGEST_AMOUNT)[:, None] * of_cpu
            np.minimum(served, np.minimum(memory[rows], LARGEST_AMOUNT)[:, None] * of_memory, out=served)
            np.minimum(served, room[rows, None], out=served)
            found[rows] = (np.floor(served, out=served) @ part) // _PARTS
        return found
