"""What a slot's processes say of their GPU time, read often: some hundred bytes for each process.

The page is the tenants', so the same holds as in `gaia_plugin.slots.usage`: whatever is in it comes out
as a value. Whether a process still lives does not matter here: the counters of a dead one stand still.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gaia_plugin.slots.pages import layout, owner_of

_WORD: Final = 8


@dataclass(frozen=True, slots=True)
class Counters:
    """GPU time measured, time that launches waited (both ns), and launches; all since the start.

    `blind_ns` is when a stream was last watched without events (CLOCK_MONOTONIC); 0: never.
    """

    busy_ns: int = 0
    throttled_ns: int = 0
    launches: int = 0
    blind_ns: int = 0


@dataclass(frozen=True, slots=True)
class ProcessCounters:
    """The counters of one process by card, in the order of the slot's slices; `owner` says whose."""

    owner: int
    pid: int
    cards: tuple[Counters, ...]


def read_counters(path: Path, cards: int) -> tuple[ProcessCounters, ...]:
    """Read the counters of the page at `path`, for a slot of `cards` cards; none where it is damaged."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        return _read(file, cards)
    except OSError:
        return ()
    finally:
        os.close(file)


def _read(file: int, cards: int) -> tuple[ProcessCounters, ...]:
    numbers = layout()
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return ()
    first, step = numbers["usage.process"], numbers["usage.process.bytes"]
    head = os.pread(file, first, 0)
    if len(head) != first:
        return ()
    words = memoryview(head).cast("Q")
    if words[numbers["usage.magic"] // _WORD] != numbers["usage_magic"]:
        return ()
    places = min(words[numbers["usage.high_water"] // _WORD], numbers["processes"])
    content = os.pread(file, places * step, first)
    found = []
    for at in range(0, len(content) - step + 1, step):
        process = memoryview(content)[at : at + step].cast("Q")
        owner = process[numbers["usage.process.owner"] // _WORD]
        if owner:
            pid, _ = owner_of(owner)
            found.append(ProcessCounters(owner, pid, tuple(_card(process, card) for card in range(cards))))
    return tuple(found)


def _card(process: memoryview, card: int) -> Counters:
    numbers = layout()
    base = numbers["usage.process.card"] + card * numbers["usage.process.card.bytes"]

    def word(name: str) -> int:
        return int(process[(base + numbers[f"usage.process.card.{name}"]) // _WORD])

    return Counters(word("busy_ns"), word("throttled_ns"), word("launches"), word("blind_ns"))
