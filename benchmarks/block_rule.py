"""A small model of the published rule for compute limits, to print beside ours: tokens that count blocks.

Written from its description alone: a pool of tokens in proportion to multiprocessors x resident threads;
a launch costs as many tokens as its grid has blocks and waits while there are none; once per interval the
refill grows or shrinks by a step in proportion to the square of the multiprocessors and to the distance of
the measured utilisation from the limit. Time is modelled, so it takes no time to run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

THREADS: Final = {40: 1024, 108: 2048, 132: 2048, 188: 1536}
"""Resident threads per multiprocessor of cards with so many of them."""

_POOL: Final = 32
_INTERVAL: Final = 120_000_000
_SAMPLE: Final = 166_666_667
_AHEAD: Final = 200_000_000
_STEP: Final = 2560


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program launches: blocks and nanoseconds of a kernel, and whether it waits for each."""

    name: str
    blocks: int
    ns: int
    sync: bool = False


def run(shape: Shape, multiprocessors: int, limit: int, seconds: int, warm: int) -> list[float]:
    """Return the percentage of the card's time in each second after the first `warm` ones."""
    pool = multiprocessors * THREADS[multiprocessors] * _POOL
    tokens = share = 0
    now = idle_at = 0
    kernels: deque[tuple[int, int]] = deque()  # when each ran
    busy = [0] * (seconds + warm + 2)
    while now < (seconds + warm) * 1_000_000_000:
        while tokens >= 0 and idle_at < now + (_INTERVAL if shape.sync else _AHEAD):
            start = max(now, idle_at)
            if shape.sync and start >= now + _INTERVAL:
                break
            idle_at = start + shape.ns
            kernels.append((start, idle_at))
            tokens -= shape.blocks
            _count(busy, start, idle_at)
        now += _INTERVAL
        while kernels and kernels[0][1] < now - _SAMPLE:
            kernels.popleft()
        ran = sum(max(0, min(end, now) - max(start, now - _SAMPLE)) for start, end in kernels)
        share = _adjusted(share, pool, multiprocessors, limit, 100 * ran // _SAMPLE)
        tokens = min(tokens + share, pool)
    return [100 * ns / 1e9 for ns in busy[warm : warm + seconds]]


def _adjusted(share: int, pool: int, multiprocessors: int, limit: int, used: int) -> int:
    distance = max(5, abs(limit - used))
    step = multiprocessors**2 * THREADS[multiprocessors] * distance // _STEP
    if distance > limit // 2:
        step = step * distance * 2 // (limit + 1)
    return min(share + step, pool) if used <= limit else max(share - step, 0)


def _count(busy: list[int], start: int, end: int) -> None:
    while start < end:
        second = start // 1_000_000_000
        stop = min(end, (second + 1) * 1_000_000_000)
        if second < len(busy):
            busy[second] += stop - start
        start = stop
