"""How much time a slot has to pay for, to get its share of a card on which processes take turns. Pure.

The library pays with the time between two events on a stream. A card without MPS runs one process at a
time, some milliseconds each, so while n processes have work that time is n times as long as what the
card did for one of them. A rate in force is a bound on time paid; `stretches` says by how much it must
exceed the share. It knows no card, only that whoever has work gets its turn; what real cards do
differently is measured and trimmed (`elastic.trimmed`), and that takes seconds. This takes none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

_POINTS: Final = tuple((point + 0.5) / 24 for point in range(24))
_ROUNDS: Final = 40
_CLOSE: Final = 1e-4
MOST_PROCESSES: Final = 8
"""More processes of one slot than this count as so many: the number is the slot's own claim."""


@dataclass(frozen=True, slots=True)
class Load:
    """A slot on a card, as parts of the card's time.

    Args:
        share: what it is to get.
        wish: the part of the time that it would have work on the card, as its events tell; 1 for one
            that always has, 0 while it is idle.
        processes: how many of its processes take turns.
        cautious: True where it must not get more than its share, and nobody measures what it gets. It
            is then stretched by less, and gets less where its kernels do wait.
    """

    share: float
    wish: float
    processes: int = 1
    cautious: bool = False


def stretches(loads: Sequence[Load]) -> list[float]:
    """Return for each slot how much longer than the card's work its events take, 1 or more.

    With x to the power of its processes for each slot that has work, the mean part of the turns that a
    slot of m processes gets is the integral of m x^(m-1) times the others' products, x from 0 to 1:
    for two slots of one process, 1 - q / 2 where q is the part of the time that the other has work.
    That part is what follows from the other's own rate, hence the rounds: rates only rise from one to
    the next, and end where each gets its share, or the card is full.
    """
    turns = [min(max(1, load.processes), MOST_PROCESSES) for load in loads]
    powers = [[x**m for x in _POINTS] for m in turns]
    weights = [[m * x ** (m - 1) for x in _POINTS] for m in turns]
    at_work = [min(load.share, load.wish) for load in loads]
    parts = [1.0] * len(loads)
    for _ in range(_ROUNDS):
        parts = _parts(at_work, powers, weights)
        for index, load in enumerate(loads):
            if load.cautious:
                parts[index] = _cautious(parts[index], at_work[:index] + at_work[index + 1 :], turns[index])
        after = [min(1.0, load.wish, load.share / part) for load, part in zip(loads, parts, strict=True)]
        if all(abs(new - old) < _CLOSE for new, old in zip(after, at_work, strict=True)):
            break
        at_work = after
    return [1.0 / part for part in parts]


def _parts(
    at_work: Sequence[float], powers: Sequence[list[float]], weights: Sequence[list[float]]
) -> list[float]:
    """Return the part of the card that each gets while it has work."""
    columns = [
        [1.0 - busy + busy * power for power in row] for busy, row in zip(at_work, powers, strict=True)
    ]
    together = [prod(column[point] for column in columns) for point in range(len(_POINTS))]
    return [
        sum(w * all_ / own for w, all_, own in zip(weight, together, column, strict=True)) / sum(weight)
        for weight, column in zip(weights, columns, strict=True)
    ]


def _cautious(part: float, others: Sequence[float], turns: int) -> float:
    """Return the largest part that a slot may get while it has work.

    Programs fall in step: a kernel that had to wait makes the next one come later, until it meets the others'
    no more and pays for itself alone. What it can so keep out of the way of is at most what the others leave
    idle. Beside one that leaves nothing idle it still finds turns half over, and waits for less than a whole
    one. A slot of several processes is the less in step the more it has.
    """
    meets = min(0.5, 1.0 - prod(1.0 - other for other in others))
    return min(1.0, 1.0 / max(1.0, 1.0 / part - meets * (1.0 - meets) / turns))
