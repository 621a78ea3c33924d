"""Counts what the agent is told to have done. A few additions for each event, and nothing else."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final

from gaia_plugin.agent.meters import GPUNODE, Outcome
from gaia_plugin.errors import Code
from gaia_plugin.metrics.snapshot import Events, Timings

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets in seconds: a page is written in a millisecond, the kubelet waits for 30 s."""

_ENDS: Final = tuple(outcome for outcome in Outcome if outcome is not Outcome.CONFLICT)
"""How a request can end that is no write."""


class _Times:
    """A histogram under construction."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        # a clock that was set back would make a sum fall that may only rise
        seconds = max(0.0, seconds)
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def now(self) -> Timings:
        return Timings(tuple(self._counts), self._seconds)


class Tally:
    """Implements `gaia_plugin.agent.meters.Meter`. Used on the event loop only.

    Args:
        clock: seconds since 1970, for the heartbeat.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # all that can be is there from the start: a rate over a count that appears with 1 misses that 1
        self._resizes = Counter({outcome.value: 0 for outcome in _ENDS})
        self._refusals = Counter({code.value: 0 for code in Code})
        self._prestarts = Counter({outcome.value: 0 for outcome in _ENDS})
        self._writes: Counter[tuple[str, str]] = Counter()
        self._allocations = 0
        self._resize_times, self._prestart_times = _Times(), _Times()
        self._heartbeat: float | None = None

    def resized(self, seconds: float, outcome: Outcome) -> None:
        """Count a resize; one that was done counts with its time."""
        self._resizes[outcome.value] += 1
        if outcome is Outcome.OK:
            self._resize_times.add(seconds)

    def refused(self, code: str) -> None:
        """Count a refusal."""
        self._refusals[str(code)] += 1

    def prestart(self, seconds: float, outcome: Outcome) -> None:
        """Count a PreStartContainer with its time."""
        self._prestarts[outcome.value] += 1
        self._prestart_times.add(seconds)

    def allocated(self) -> None:
        """Count an Allocate."""
        self._allocations += 1

    def wrote(self, what: str, outcome: Outcome) -> None:
        """Count a write; a status that was taken is the node's heartbeat."""
        for each in Outcome if (what, outcome.value) not in self._writes else ():
            self._writes.setdefault((what, each.value), 0)
        self._writes[what, outcome.value] += 1
        if what == GPUNODE and outcome is Outcome.OK:
            self._heartbeat = self._clock()

    def events(self) -> Events:
        """Return all counts as they stand."""
        return Events(
            resizes=dict(self._resizes),
            resize_times=self._resize_times.now(),
            refusals=dict(self._refusals),
            allocations=self._allocations,
            prestarts=dict(self._prestarts),
            prestart_times=self._prestart_times.now(),
            writes=dict(self._writes),
            heartbeat=self._heartbeat,
        )
