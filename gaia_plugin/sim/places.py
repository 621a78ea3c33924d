"""Who is behind the process places of a simulation, as seen from this process's pid namespace."""

from __future__ import annotations

import fcntl
import os
import struct
import weakref
from typing import Any, Final

from gaia_plugin.slots.processes import stat

_FLOCK: Final = "hhqqi4x"
"""A `struct flock`: type, whence, start, length, pid."""
_TICKS: Final = (1 << 32) - 1
"""The bits of an owner word that are a start time; those above tell pid namespaces apart."""
_DEAD: Final = frozenset("ZXx")


class Places:
    """The places of one mapped state.

    Args:
        words: of the state.
        layout: what the state says of itself.
        file: a descriptor of the state file; closed with this object.
    """

    def __init__(self, words: memoryview, layout: dict[str, Any], file: int) -> None:
        self._words = words
        self._layout = layout["process"]
        self._bits: Final = int(layout["start_bits"])
        self._high = int(layout["high_water"]) // 8
        self._file = file
        self._here: Final = os.stat("/proc/self/ns/pid").st_ino
        weakref.finalize(self, os.close, file)

    def living(self, place: int) -> int | None:
        """Return the pid of the living process of a place; None if there is none, 0 if it is not seen."""
        owner, space = self._word(place, "owner"), self._word(place, "space")
        if owner == 0:
            return None
        if space not in (0, self._here):
            return self._holder(place)
        pid, start = owner >> self._bits, owner & _TICKS
        found = stat(pid)
        if found is None or found.start & _TICKS != start:
            return None
        return None if found.state in _DEAD and found.threads <= 1 else pid

    def pid(self, owner: int) -> int:
        """Return the pid of an owner word as seen from here; its own pid when it has ended."""
        for place in range(min(self._words[self._high], int(self._layout["count"]))):
            if self._word(place, "owner") == owner:
                return self.living(place) or owner >> self._bits
        return owner >> self._bits

    def _word(self, place: int, name: str) -> int:
        at = self._layout["at"] + place * self._layout["size"] + self._layout[name]
        return int(self._words[at // 8])

    def _holder(self, place: int) -> int | None:
        """Ask the kernel who holds the lock of a place (process.c says why); None: nobody."""
        start = self._layout["lock"] + place
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else max(0, pid)
