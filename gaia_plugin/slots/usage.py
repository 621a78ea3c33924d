"""What the processes of a slot claim to use, read from their page.

The page is the tenants': it may be truncated, foreign or noise at any time. It is read with pread
and never mapped, and whatever it holds comes out as a value; nothing is raised and nothing waits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gaia_plugin.slots.pages import layout, owner_of
from gaia_plugin.slots.processes import alive

HostPid = Callable[[int, int], int | None]
"""From a process's own pid and start time to its pid on this machine; None when it has ended."""

_WORD: Final = 8
_CUT: Final = "it was cut while it was read"
_LARGEST: Final = (1 << 53) - 1
"""Larger words are noise; cut so that they stay numbers in JSON and in SQLite."""


@dataclass(frozen=True, slots=True)
class CardUsage:
    """What one process claims on one card: bytes given, bytes announced, whether it has a context.

    `returns` counts how often bytes were given back.
    """

    used: int = 0
    pending: int = 0
    context: bool = False
    busy_ns: int = 0
    returns: int = 0


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The claims of one living process; `cards` are in the order of the slot's slices.

    `place` is its index in both pages and `owner` the word that marks it there; `pid` is the one by
    which this machine knows it, also when it is in a container. `library` is the version of the library
    that registered it, as that library's version word has it.
    """

    place: int
    owner: int
    pid: int
    start: int
    cards: tuple[CardUsage, ...]
    library: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """A usage page: its living processes, or the reason why it says nothing (`damaged`).

    `absent` are pid and start time, as the page has them, of those that no longer live in the slot, or
    never did.
    """

    processes: tuple[ProcessUsage, ...] = ()
    damaged: str = ""
    absent: tuple[tuple[int, int], ...] = ()

    def used(self, card: int) -> int:
        """Return the bytes that all processes claim on the card of that index."""
        return sum(process.cards[card].used for process in self.processes)

    def pending(self, card: int) -> int | None:
        """Return the bytes announced on that card by all not known dead; None if the page is damaged."""
        return None if self.damaged else sum(process.cards[card].pending for process in self.processes)


def same_pid(pid: int, start: int) -> int | None:
    """Return `pid` while it lives: for processes of this process's own pid namespace."""
    return pid if alive(pid, start) else None


def read_usage(path: Path, cards: int, host_pid: HostPid = same_pid) -> Usage:
    """Read the page at `path`, for a slot of `cards` cards.

    Processes for which `host_pid` says None are left out. What is announced is read before
    what is used, so that bytes on their way from one word to the other count twice, never not at all.
    """
    try:
        # neither a FIFO nor a link of a tenant's may lead us astray
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as fault:
        return Usage(damaged=f"it cannot be opened: {fault.strerror}")
    try:
        return _read(file, cards, host_pid)
    except OSError as fault:
        return Usage(damaged=f"it cannot be read: {fault.strerror}")
    finally:
        os.close(file)


def _read(file: int, cards: int, host_pid: HostPid) -> Usage:
    numbers = layout()
    status, size = os.fstat(file), numbers["usage.bytes"]
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        return Usage(damaged="it is not a file of the right size")
    first, step = numbers["usage.process"], numbers["usage.process.bytes"]
    head = os.pread(file, first, 0)
    if len(head) != first:
        return Usage(damaged=_CUT)
    words = memoryview(head).cast("Q")
    marks = [words[numbers[f"usage.{name}"] // _WORD] for name in ("magic", "layout_version", "size")]
    if marks != [numbers["usage_magic"], numbers["layout_version"], size]:
        return Usage(damaged="its header is not one of ours")
    # a process raises this word before it announces anything; beyond it nobody ever was
    places = min(words[numbers["usage.high_water"] // _WORD], numbers["processes"])
    page = os.pread(file, places * step, first) if places else b""
    if len(page) != places * step:
        return Usage(damaged=_CUT)
    owners = memoryview(page).cast("Q")[numbers["usage.process.owner"] // _WORD :: step // _WORD].tolist()
    found, absent = [], []
    for place, owner in enumerate(owners):
        if owner == 0:
            continue
        if (pid := host_pid(*owner_of(owner))) is None:
            absent.append(owner_of(owner))
            continue
        offset = place * step
        again = os.pread(file, step, first + offset)
        if len(again) != step:
            return Usage(damaged=_CUT)
        process = _process(place, pid, page[offset : offset + step], again, cards)
        if process is not None:
            found.append(process)
    return Usage(tuple(found), absent=tuple(absent))


def _process(place: int, pid: int, announced: bytes, given: bytes, cards: int) -> ProcessUsage | None:
    """Put a place together from two readings; None when it changed hands between them."""
    numbers = layout()
    before, after = memoryview(announced).cast("Q"), memoryview(given).cast("Q")
    at = numbers["usage.process.owner"] // _WORD
    owner = before[at]
    if after[at] != owner:
        return None
    found = []
    for card in range(cards):
        base = numbers["usage.process.card"] + card * numbers["usage.process.card.bytes"]

        def word(of: memoryview, name: str, base: int = base) -> int:
            return min(int(of[(base + numbers[f"usage.process.card.{name}"]) // _WORD]), _LARGEST)

        found.append(
            CardUsage(
                used=word(after, "used"),
                pending=word(before, "pending"),
                context=word(after, "context") != 0,
                busy_ns=word(after, "busy_ns"),
                returns=word(before, "returns"),
            )
        )
    library = int(after[numbers["usage.process.library"] // _WORD])
    return ProcessUsage(place, owner, pid, owner_of(owner)[1], tuple(found), library)
