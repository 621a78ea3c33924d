"""Reads the truth of a simulation, and sets its faults.

The state file describes itself: where each word lies is written in it by the C code, and known
there only. Words are 64 bits and are moved whole (`memoryview` items of native type are one load or
one store; `struct.pack_into` with an explicit byte order is not).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from gaia_plugin.errors import Unusable
from gaia_plugin.sim.observe import CardTime, hold, observe
from gaia_plugin.sim.places import Places
from gaia_plugin.sim.probe import held_state_file

Habit = Literal["normal", "late", "none", "unsupported"]
"""What NVML says about utilisation, see `Simulation.utilisation`."""

_LAYOUT_AT: Final = 32
_LAYOUT_END: Final = 4096
_IN_USE: Final = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
"""A `struct flock`: the first byte, shared."""


@dataclass(frozen=True, slots=True)
class SimProcess:
    """What one living process has: bytes per card, `context` the part of `used` that contexts take."""

    pid: int
    used: tuple[int, ...]
    context: tuple[int, ...]
    launches: tuple[int, ...]


class Simulation:
    """The state of the simulated driver in `directory`.

    Args:
        directory: as given to `make_sim`.

    Raises:
        Unusable: there is none, or it cannot work on this machine.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory: Final = Path(os.path.abspath(directory))
        self.state, self._map, file = _map(self.directory)
        self._words = memoryview(self._map).cast("Q")
        text = self._map[_LAYOUT_AT:_LAYOUT_END].split(b"\0", 1)[0]
        self._layout: Final[dict[str, Any]] = json.loads(text)
        self._places = Places(self._words, self._layout, file)

    def used(self) -> tuple[int, ...]:
        """Return the bytes in use per card, contexts included; the dead count nothing."""
        rows = [process.used for process in self.processes()]
        return tuple(sum(column) for column in zip(*rows, strict=True)) or (0,) * self._cards

    def peak(self) -> tuple[int, ...]:
        """Return the most bytes that were ever in use per card, since the start or `reset_peak`."""
        return tuple(self._card(index, "peak") for index in range(self._cards))

    def reset_peak(self) -> None:
        """Let the peaks begin anew, from nothing."""
        for index in range(self._cards):
            self._words[self._card_at(index, "peak")] = 0

    def processes(self) -> tuple[SimProcess, ...]:
        """Return the living processes that have initialised CUDA, in the order of their places."""
        places = min(self._words[self._layout["high_water"] // 8], self._layout["process"]["count"])
        found = (self._process(place) for place in range(places))
        return tuple(process for process in found if process is not None)

    def time(self, card: int) -> CardTime:
        """Return what `card` has run until now, all of it at one instant."""
        self._check(card)
        return observe(self._map, card, self._places.pid)

    @contextlib.contextmanager
    def held(self, card: int) -> Iterator[None]:
        """Let `card` stand still within the block: it takes work, and begins with it at the end.

        So it does not matter how long programs need to queue something. Calls that wait for the card
        wait.

        Raises:
            ValueError: there is no such card.
        """
        self._check(card)
        hold(self._map, card, True)
        try:
            yield
        finally:
            hold(self._map, card, False)

    def executed(self, card: int) -> dict[int, int]:
        """Return the card time in nanoseconds that each process, by pid, has had until now.

        The living are in it once they have submitted work, and the last 256 that ended; work that is
        still queued is not.
        """
        return dict(self.time(card).executed)

    def busy(self, card: int) -> tuple[int, int]:
        """Return how long `card` has worked until now, and the instant (``time.monotonic_ns()``)."""
        found = self.time(card)
        return found.busy_ns, found.at_ns

    def utilisation(self, habit: Habit, *, seconds: float | None = None, delay_ms: int = 1000) -> None:
        """Let NVML say from now on about utilisation: what was, late, nothing, or that it cannot tell.

        Args:
            habit: "normal" and "late" show samples, late ones `delay_ms` after their time; "none"
                finds no sample of any process; "unsupported" answers as under MIG.
            seconds: after which "none" and "unsupported" end by themselves; None is for ever.

        Raises:
            ValueError: there is no such habit.
        """
        if habit not in get_args(Habit):
            raise ValueError(f"{habit!r} is no habit; there are {', '.join(get_args(Habit))}")
        words = {name: at // 8 for name, at in self._layout["habit"].items()}
        self._words[words["until"]] = 0 if seconds is None else time.monotonic_ns() + round(seconds * 1e9)
        if habit in ("normal", "late"):
            self._words[words["delay"]] = delay_ms * 1_000_000 if habit == "late" else 0
        self._words[words["mode"]] = {"none": 1, "unsupported": 2}.get(habit, 0)

    def xid(self, card: int, code: int) -> None:
        """Let an XID befall `card`: everybody who registered for them with NVML is told.

        Raises:
            ValueError: there is no such card.
        """
        self._check(card)
        layout, count = self._layout["card"], self._card_at(card, "xids")
        place = self._words[count] % layout["xid_count"]
        self._words[self._card_at(card, "xid") + place] = code
        self._words[count] += 1

    def fail(self, family: str, code: int, times: int = 1) -> None:
        """Let the next `times` calls of a family fail with `code`, in whichever process they come.

        Raises:
            ValueError: there is no such family; the text names those there are.
        """
        self._words[self._trouble_at(family, "fault")] = (times << 32 | code) if times else 0

    def delay(self, family: str, ns: int) -> None:
        """Let each call of a family take `ns` longer, before it has any effect.

        0 ends that, within milliseconds also for the calls that wait at the moment.
        """
        self._words[self._trouble_at(family, "delay")] = ns

    def pending_failures(self, family: str) -> int:
        """Return how many calls of a family are still to fail."""
        return int(self._words[self._trouble_at(family, "fault")] >> 32)

    def clear(self) -> None:
        """Take back every fault and delay."""
        for family in self._layout["families"]:
            self.fail(family, 0, 0)
            self.delay(family, 0)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of entry points that can fail or be delayed."""
        return tuple(self._layout["families"])

    def _check(self, card: int) -> None:
        if not 0 <= card < self._cards:
            raise ValueError(f"there is no card {card}; they are 0 to {self._cards - 1}")

    @property
    def _cards(self) -> int:
        return int(self._layout["cards"])

    @property
    def _per_card(self) -> int:
        return int(self._layout["process"]["card_size"])

    def _card_at(self, index: int, word: str) -> int:
        card = self._layout["card"]
        return int(card["at"] + index * card["size"] + card[word]) // 8

    def _card(self, index: int, word: str) -> int:
        return self._words[self._card_at(index, word)]

    def _trouble_at(self, family: str, word: str) -> int:
        trouble, families = self._layout["trouble"], self._layout["families"]
        if family not in families:
            raise ValueError(f"{family!r} is no family of entry points; there are {', '.join(families)}")
        return int(trouble["at"] + families.index(family) * trouble["size"] + trouble[word]) // 8

    def _process(self, place: int) -> SimProcess | None:
        layout = self._layout["process"]
        at = layout["at"] + place * layout["size"]
        pid = self._places.living(place)
        if pid is None:
            return None

        def row(word: str) -> tuple[int, ...]:
            first = at + layout["card"] + layout[word]
            return tuple(self._words[(first + card * self._per_card) // 8] for card in range(self._cards))

        return SimProcess(pid, row("used"), row("context"), row("launches"))


def _map(directory: Path) -> tuple[Path, mmap.mmap, int]:
    """Map the state file as a user of it: it stays as long as the map does (state.c has the rules).

    Its descriptor stays open with it, for questions about the locks of places.
    """
    with held_state_file(directory) as path:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _IN_USE)
                return path, mmap.mmap(handle, 0), os.dup(handle)
            finally:
                os.close(handle)
        except (OSError, ValueError) as trouble:
            raise Unusable(f"The state of the simulated GPU in {path} cannot be read: {trouble}.") from None
