"""Device memory of a process that no hook sees: contexts, modules, local memory.

It is the driver's figure less what the process claims, and the two cannot be read at one instant.
A value too low would let a slot past its limit, so only agreement over several quiet samples may
lower it; any sample may raise it, since a liar could make all of its samples look unquiet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

QUIET_SAMPLES: Final = 3
"""So many quiet samples in a row, and the largest of them, lower an overhead."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a process claims on one card at one end of a sample, in bytes."""

    used: int
    pending: int

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


def sampled(
    known: Overhead, before: Claim, figure: int | None, after: Claim, *, charged: int = 0
) -> Overhead:
    """Return what is known after one more sample.

    Args:
        known: so far; `Overhead()` at first.
        before: the claim read before the driver was asked.
        figure: the driver's bytes for the process; None where it gives none.
        after: the claim read after the driver answered.
        charged: bytes that count while nothing is known; a racing sample must exceed it to count.
    """
    if figure is None:
        return replace(known, quiet=(), at=None)
    value = max(0, figure - max(before.total, after.total))
    if before != after or before.pending:
        # racing: the figure may lack bytes that are claimed already, so `value` is a lower bound
        floor = charged if known.bytes is None else known.bytes
        return Overhead(value if value > floor else known.bytes)
    # quiet samples count together only while the claim stands still from one to the next
    series = known.quiet if known.at == before.used else ()
    quiet = (*series, value)[-QUIET_SAMPLES:]
    if known.bytes is None:
        return Overhead(max(quiet) if len(quiet) > 1 else None, quiet, before.used)
    if len(quiet) == QUIET_SAMPLES:
        return Overhead(max(quiet), quiet, before.used)
    return Overhead(max(known.bytes, value), quiet, before.used)
