"""The usual mix: what has been asked for, learnt from the requests seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gaia_plugin.placement.cluster.ask import Ask
from gaia_plugin.placement.model import Request

_FIRST: Final = 50
"""Requests after which the first prices are made."""

_LONGEST: Final = 16_384
"""Requests after which half of the memory is dropped, so that the mix follows a change of habits."""


class Seen(NamedTuple):
    """A request in the mix, with its part of the host's CPU and memory, and how often it was seen."""

    request: Request
    cpu: int
    memory: int
    times: int


class Mix:
    """Counts asks. Each pod is to be counted once, when it is first seen: a retry is no new wish."""

    def __init__(self, seen: Mapping[Ask, int] | None = None) -> None:
        self._times: Counter[Ask] = Counter(dict(seen or {}))
        self._total = self._times.total()
        self._ended = 0
        self._due = _FIRST

    def see(self, ask: Ask) -> bool:
        """Count an ask; tell whether prices are to be made anew: each time the mix has doubled."""
        self._times[ask] += 1
        self._total += 1
        if self._total < self._due:
            return False
        if self._total >= _LONGEST:
            self._forget()
        self._due = max(_FIRST, min(2 * self._total, _LONGEST))
        return True

    def end(self) -> None:
        """Count a pod that has left."""
        self._ended += 1

    @property
    def churn(self) -> float:
        """Return how many of the pods that came have left, from 0 (a cluster that fills up) to 1."""
        return min(1.0, self._ended / max(1, self._total))

    def _forget(self) -> None:
        self._times = Counter({ask: times // 2 for ask, times in self._times.items() if times > 1})
        self._total = self._times.total()
        self._ended //= 2

    def __iter__(self) -> Iterator[Seen]:
        """Go through the requests, in an order that depends on them alone."""
        for ask, times in sorted(self._times.items(), key=_order):
            for request in ask.requests:
                part = len(ask.requests)
                yield Seen(request, ask.cpu // part, ask.memory // part, times)


def _order(item: tuple[Ask, int]) -> tuple[object, ...]:
    ask, times = item
    requests = [(r.memory_units or 0, r.cores or 0, r.count, sorted(r.models)) for r in ask.requests]
    return ask.cpu, ask.memory, requests, times
