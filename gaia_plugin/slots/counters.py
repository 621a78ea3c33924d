"""What a slot's processes say of their GPU time, read often: some hundred bytes for each process.

The page is the tenants', so the same holds as in `gaia_plugin.slots.usage`: whatever is in it comes out
as a value. Whether a process still lives does not matter here: the counters of a dead one stand still.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gaia_plugin.slots.pages import layout, owner_of

_WORD: Final = 8
_HEAD: Final = 64
"""Bytes at the beginning of a page with the words that are looked at here."""
_MOST_KEPT: Final = 1 << 16


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
    return _parsed(_places(os.fspath(path)), cards)


class CounterPages:
    """The same for pages that are read again and again: one whose words stand still is not taken apart anew.

    Args:
        path: tells where the page of a slot lies; it is asked once.
    """

    def __init__(self, path: Callable[[str], Path]) -> None:
        self._path = path
        self._known: dict[str, _Known] = {}

    def read(self, slot: str, cards: int) -> tuple[ProcessCounters, ...]:
        """Return a slot's counters; the very object of the last time when no word of them has changed."""
        known = self._known.get(slot)
        if known is None:
            known = self._known[slot] = _Known(os.fspath(self._path(slot)))
        content = _places(known.path)
        if content != known.content or cards != known.cards:
            known.processes = _parsed(content, cards)
            known.cards = cards
            # a page that somebody filled must not be kept a second time in memory
            known.content = content if len(content) <= _MOST_KEPT else None
        return known.processes

    def forget(self, slot: str) -> None:
        """Forget a slot that is gone."""
        self._known.pop(slot, None)


@dataclass(slots=True)
class _Known:
    """What was read of a page the last time."""

    path: str
    content: bytes | None = b""
    cards: int = 0
    processes: tuple[ProcessCounters, ...] = ()


def _places(path: str) -> bytes:
    """Return the places of the page that were ever taken; nothing where it is damaged."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return _read(file)
    except OSError:
        return b""
    finally:
        os.close(file)


def _read(file: int) -> bytes:
    numbers = layout()
    # of a FIFO or a directory this fails; of another file it gives words that are none of ours
    head = os.pread(file, _HEAD, 0)
    if len(head) != _HEAD:
        return b""
    words = memoryview(head).cast("Q")
    if words[numbers["usage.magic"] // _WORD] != numbers["usage_magic"]:
        return b""
    places = min(words[numbers["usage.high_water"] // _WORD], numbers["processes"])
    if not places or not stat.S_ISREG(os.fstat(file).st_mode):
        return b""
    return os.pread(file, places * numbers["usage.process.bytes"], numbers["usage.process"])


def _parsed(content: bytes, cards: int) -> tuple[ProcessCounters, ...]:
    if not content:
        return ()
    numbers = layout()
    step, found = numbers["usage.process.bytes"], []
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
