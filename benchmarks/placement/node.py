"""Time one placement on a node: `python benchmarks/placement node`.

Time is this process's CPU time of one decision: over machines in random states of use, then on an idle
one, where several cards have the most sets to choose from.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import Iterable, Sequence

from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import CardState, Request, place
from gaia_plugin.shares import Share

CAPACITY = Share(94, 100)


def tree(cards: int) -> Topology:
    """Return NVLink within each four cards, one NUMA node for each eight."""

    def tie(one: int, other: int) -> Tie:
        if one // 4 == other // 4:
            return Tie(Level.NVLINK, 2)
        return Tie(Level.NUMA if one // 8 == other // 8 else Level.ANY)

    return Topology.of((f"{i:02}", f"{j:02}", tie(i, j)) for j in range(cards) for i in range(j))


def machine(cards: int) -> list[CardState]:
    """Return idle cards."""
    return [CardState(f"{i:02}", "card", CAPACITY, CAPACITY) for i in range(cards)]


def used(cards: int, dice: random.Random) -> list[CardState]:
    """Return cards of which half are in use by some amount."""
    return [
        CardState(one.uuid, one.model, CAPACITY, Share(dice.randint(0, 94), dice.randint(0, 100)))
        if dice.random() < 0.5
        else one
        for one in machine(cards)
    ]


def decide(states: Iterable[list[CardState]], request: Request, topology: Topology) -> tuple[float, float]:
    """Return the median and the 99th percentile of a decision, in microseconds of CPU time."""
    spent = []
    for state in states:
        began = time.process_time_ns()
        with contextlib.suppress(Refusal):
            place(request, state, topology)
        spent.append((time.process_time_ns() - began) / 1000)
    return statistics.median(spent), statistics.quantiles(spent, n=100)[98]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; there are no options."""
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    print(f"{'cards':>5} {'in use':>6} {'request':<18} {'median us':>10} {'p99 us':>10}")
    for cards, rounds in ((2, 500), (8, 500), (16, 10)):
        kinds = {
            "4 GiB": Request(16),
            "one whole card": Request(None, 100),
            f"{cards // 2} whole cards": Request(None, 50 * cards),
            "more than is free": Request(90, 100),
        }
        dice = random.Random(1)
        states = {"half": [used(cards, dice) for _ in range(rounds)], "none": [machine(cards)] * rounds}
        for use, (name, request) in itertools.product(states, kinds.items()):
            median, slow = decide(states[use], request, tree(cards))
            print(f"{cards:>5} {use:>6} {name:<18} {median:>10.0f} {slow:>10.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
