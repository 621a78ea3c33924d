"""What a share of a card costs, in whole cards: the dual of cutting cards into the shares asked for.

The fractional cutting-stock problem, by the simplex of Gilmore and Gomory (1961): patterns (sets of
shares that fit on one card together) are made when they are needed, by a knapsack over both dimensions
of a card. Its dual are the prices at which the mix is dearest while no set of shares that fits on a
card costs more than the card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Size = tuple[int, int]
"""Units of memory and cores, each from 1 on."""

_MOST_STEPS: Final = 1000
_NEARLY: Final = 1e-9
_FINEST: Final = 100


def prices(demand: Mapping[Size, int], card: Size) -> dict[Size, float]:
    """Return the price of each size that is asked for, in cards; 0 for what rides in the gaps.

    Args:
        demand: how often each size is asked for; each fits on a card.
        card: the amounts that a card has.
    """
    sizes = sorted(demand)
    if not sizes:
        return {}
    knapsack = _binding(sizes, card)
    wanted = np.array([float(demand[size]) for size in sizes])
    basis: Floats = np.diag([float(knapsack.most(j)) for j in range(len(sizes))])
    cost = np.ones(len(sizes))
    price: Floats = np.zeros(len(sizes))
    pool: Floats = np.zeros((0, len(sizes)))
    for _ in range(_MOST_STEPS):
        price = np.linalg.solve(basis.T, cost).astype(np.float64)
        enter, enter_cost = np.zeros(len(sizes)), 0.0
        if price.min() < -_NEARLY:
            enter[price.argmin()] = -1.0  # serve more of a size than is asked for
        else:
            pattern = _dearest(pool, price)
            if pattern is None:
                pool = np.vstack((pool, knapsack.patterns(price)))
                pattern = _dearest(pool, price)
            if pattern is None:
                break
            enter, enter_cost = pattern, 1.0
        rate, level = np.linalg.solve(basis, enter), np.linalg.solve(basis, wanted)
        grows = rate > _NEARLY
        ratio = np.where(grows, level / np.where(grows, rate, 1.0), np.inf)
        leave = int(ratio.argmin())
        basis[:, leave], cost[leave] = enter, enter_cost
    # Rounded, so that equal mixes have equal prices whatever the last bits of the solver.
    return {size: max(round(float(p), 9), 0.0) for size, p in zip(sizes, price, strict=True)}


def filling(price: Mapping[Size, float], card: Size) -> Floats:
    """Return for each free amount the dearest set of shares that fits, in cards.

    Shape (units of the card + 1, cores + 1).
    """
    sizes = [size for size in sorted(price) if price[size] > 0]
    if not sizes:
        return np.zeros((card[0] + 1, card[1] + 1))
    knapsack = Knapsack(sizes, card)
    table = knapsack.table(np.array([price[size] for size in sizes]))
    rows = np.minimum(np.arange(card[0] + 1) // knapsack.steps[0], table.shape[0] - 1)
    columns = np.minimum(np.arange(card[1] + 1) // knapsack.steps[1], table.shape[1] - 1)
    spread: Floats = np.round(table[np.ix_(rows, columns)], 9)
    return spread


def _dearest(pool: Floats, price: Floats) -> Floats | None:
    """Return the pattern that is dearest; None if none is dearer than a card."""
    if not len(pool):
        return None
    worth = pool @ price
    best = int(worth.argmax())
    found: Floats = pool[best]
    return found if worth[best] > 1 + _NEARLY else None


def _binding(sizes: Sequence[Size], card: Size) -> Knapsack:
    """Leave out a dimension that binds nowhere: where all ask for no larger part of it than of the other."""
    if all(units * card[1] <= cores * card[0] for units, cores in sizes):
        return Knapsack([(cores, 0) for _, cores in sizes], (card[1], 0))
    if all(cores * card[0] <= units * card[1] for units, cores in sizes):
        return Knapsack([(units, 0) for units, _ in sizes], (card[0], 0))
    return Knapsack(sizes, card)


class Knapsack:
    """Fills a card with shares of given sizes, on a grid of at most 100 steps each way.

    The grid is the coarsest that tells the sizes apart, where that is coarse enough; else amounts are
    rounded up to it. The first amount of every size is at least 1; the second may be 0 for all, and
    counts for nothing then.
    """

    def __init__(self, sizes: Sequence[Size], card: Size) -> None:
        self.steps = (
            max(gcd(*(a for a, _ in sizes)), -(-card[0] // _FINEST)),
            max(gcd(*(b for _, b in sizes)), -(-card[1] // _FINEST), 1),
        )
        self._a = np.array([-(-a // self.steps[0]) for a, _ in sizes])
        self._b = np.array([-(-b // self.steps[1]) for _, b in sizes])
        self._rows = max(card[0] // self.steps[0], int(self._a.max()))
        self._columns = max(card[1] // self.steps[1], int(self._b.max())) if self._b.any() else 0

    def most(self, j: int) -> int:
        """Return how many shares of the size at `j` fit on a card."""
        of_first = self._rows // int(self._a[j])
        return min(of_first, self._columns // int(self._b[j])) if self._b[j] else of_first

    def table(self, price: Floats) -> Floats:
        """Return the worth of each free amount, in steps of the grid."""
        return self._padded(price)[self._a.max() :, self._b.max() :]

    def patterns(self, price: Floats) -> Floats:
        """Return dear sets of shares that fit on a card: for each size the dearest that has one of it.

        Shape (sizes, sizes): a row for each set, with how many of each size are in it.
        """
        best = self._padded(price)
        return np.array([self._with(j, best, price) for j in range(price.size)])

    def _with(self, first: int, best: Floats, price: Floats) -> Floats:
        """Return the dearest set that has a share of the size at `first`."""
        top, side = int(self._a.max()), int(self._b.max())
        pattern = np.zeros(price.size)
        row, column, j = top + self._rows, side + self._columns, first
        while True:
            pattern[j] += 1
            row, column = row - int(self._a[j]), column - int(self._b[j])
            while row > top and best[row, column] == best[row - 1, column]:
                row -= 1
            if row == top:
                return pattern
            j = int((best[row - self._a, column - self._b] + price).argmax())

    def _padded(self, price: Floats) -> Floats:
        """Return `table` with a margin of minus infinity, so that no amount needs a bounds check."""
        top, side = int(self._a.max()), int(self._b.max())
        best = np.full((top + self._rows + 1, side + self._columns + 1), -np.inf)
        best[top, side:] = 0.0
        columns = np.arange(side, side + self._columns + 1)[None, :] - self._b[:, None]
        rise = price[:, None]
        for row in range(top + 1, top + self._rows + 1):
            fits = best[(row - self._a)[:, None], columns] + rise
            best[row, side:] = np.maximum(best[row - 1, side:], fits.max(axis=0))
        return best
