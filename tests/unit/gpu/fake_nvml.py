"""A fake libnvidia-ml.so.1 with habits to order: its directory and its variables."""

from __future__ import annotations

import ctypes
from pathlib import Path

SONAME = "libnvidia-ml.so.1"


class FakeDriver:
    """A directory with a fake NVML, and its variables."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._library = ctypes.CDLL(str(directory / SONAME))

    def set(self, name: str, value: int, *at: int) -> None:
        """Set a number, or one element of an array of 4 by 4 or 4 by 8 numbers."""
        if not at:
            ctypes.c_int.in_dll(self._library, f"fake_{name}").value = value
            return
        width = 8 if name == "remote" else 4
        place = at[0] if len(at) == 1 else at[0] * width + at[1]
        (ctypes.c_int * (place + 1)).in_dll(self._library, f"fake_{name}")[place] = value

    def link(self, level: int, one: int, other: int) -> None:
        """Set the common ancestor of two cards."""
        self.set("levels", level, one, other)
        self.set("levels", level, other, one)
