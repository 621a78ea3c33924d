"""Device memory of a process that no hook sees: contexts, modules, local memory.

It is the driver's figure less what the process claims, and the two cannot be read at one instant.
A value too low would let a slot past its limit; one too high would refuse an honest program its own
memory. So only samples during which nothing came or went (quiet ones) measure, and only several of them
in a row may lower a value. A program that never stands still keeps the constant for a context; since a
liar could pretend that, many racing samples that all exceed the value raise it to the least of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

QUIET_SAMPLES: Final = 3
"""So many quiet samples in a row, and the largest of them, lower an overhead."""

RACING_SAMPLES: Final = 10
"""So many racing samples in a row, and the smallest of them, raise an overhead.

An honest program would have to be caught each time with memory that it had given back at both ends.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a process claims on one card at one end of a sample, in bytes.

    `returns` is how often it has given bytes back, so that bytes which came and went are noticed.
    """

    used: int
    pending: int
    returns: int = 0

    @property
    def total(self) -> int:
        """Return all that the process is charged for."""
        return self.used + self.pending


@dataclass(frozen=True, slots=True)
class Overhead:
    """What is known of one process on one card; `bytes` is None until it has been measured."""

    bytes: int | None = None
    quiet: tuple[int, ...] = ()
    at: int | None = None
    racing: tuple[int, ...] = ()


def sampled(
    known: Overhead, before: Claim, figure: int | None, after: Claim, *, charged: int = 0
) -> Overhead:
    """Return what is known after one more sample.

    Args:
        known: so far; `Overhead()` at first.
        before: the claim read before the driver was asked.
        figure: the driver's bytes for the process; None where it gives none.
        after: the claim read after the driver answered.
        charged: bytes that count while nothing is known; racing samples must exceed it to count.
    """
    if figure is None:
        return replace(known, quiet=(), at=None, racing=())
    value = max(0, figure - max(before.total, after.total))
    if before != after or before.pending:
        racing = (*known.racing, value)[-RACING_SAMPLES:]
        floor = charged if known.bytes is None else known.bytes
        least = min(racing) if len(racing) == RACING_SAMPLES else 0
        return Overhead(least if least > floor else known.bytes, racing=racing)
    # quiet samples count together only while the claim stands still from one to the next
    series = known.quiet if known.at == before.used else ()
    quiet = (*series, value)[-QUIET_SAMPLES:]
    if known.bytes is None:
        return Overhead(max(quiet) if len(quiet) > 1 else None, quiet, before.used)
    if len(quiet) == QUIET_SAMPLES:
        return Overhead(max(quiet), quiet, before.used)
    return Overhead(max(known.bytes, value), quiet, before.used)
