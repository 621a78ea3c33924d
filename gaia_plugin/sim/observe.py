"""The truth about a simulated card's time, at one instant.

What a card has run is worked out by the C code when somebody looks, under the card's lock; so this
calls it, in a library under a name of its own (see `probe` for why the driver is not loaded here).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gaia_plugin import paths
from gaia_plugin.errors import Unusable

LIBRARY: Final = "libgaia_sim.so"
_HEAD: Final = 3
_ROW: Final = 4
_OTHER_VERSION: Final = "The simulated GPU's state is of another version of Gaia; end its programs."


@dataclass(frozen=True, slots=True)
class CardTime:
    """What a card had run at an instant. Two of them, subtracted, give the shares of a window.

    Args:
        at_ns: the instant, on the clock of ``time.monotonic_ns()``.
        busy_ns: how long the card had worked since the simulation was made.
        executed: card time that each process had, by pid: the living, and the last 256 that ended.
        queued: card time of work submitted that has not run, by pid, of those that have any.
    """

    at_ns: int
    busy_ns: int
    executed: Mapping[int, int]
    queued: Mapping[int, int]


def observe(state: mmap.mmap, card: int, pid_of: Callable[[int], int]) -> CardTime:
    """Return what `card` of the mapped state has run until now.

    Args:
        state: as a whole.
        card: its index.
        pid_of: tells the pid behind an owner word.

    Raises:
        Unusable: the library was not built, or the state is of another version.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(state))
    room = 64
    while True:
        words = (ctypes.c_uint64 * room)()
        needed = _library().gaia_sim_observe(address, card, words, room)
        if needed < 0:
            raise Unusable(_OTHER_VERSION)
        if needed <= room:
            break
        room = needed + 16 * _ROW  # some may come meanwhile
    executed: dict[int, int] = {}
    queued: dict[int, int] = {}
    for row in range(words[2]):
        owner, ran, waits, _ = words[_HEAD + row * _ROW : _HEAD + (row + 1) * _ROW]
        pid = pid_of(owner)
        executed[pid] = executed.get(pid, 0) + ran
        if waits:
            queued[pid] = queued.get(pid, 0) + waits
    return CardTime(words[0], words[1], executed, queued)


def hold(state: mmap.mmap, card: int, still: bool) -> None:
    """Let `card` of the mapped state stand still from now on, or go on.

    Raises:
        Unusable: as `observe`.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(state))
    if _library().gaia_sim_hold(address, card, still) != 0:
        raise Unusable(_OTHER_VERSION)


@functools.cache
def _library() -> ctypes.CDLL:
    path = paths.library_directory() / "sim" / LIBRARY
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        raise Unusable(
            f"The simulated GPU was not built: {path} is missing. Run `make install` again."
        ) from None
    library.gaia_sim_observe.restype = ctypes.c_int64
    library.gaia_sim_observe.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.c_uint64,
    ]
    library.gaia_sim_hold.restype = ctypes.c_int
    library.gaia_sim_hold.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
    return library
