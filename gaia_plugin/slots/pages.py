"""Pages of a slot, through libgaia_pages.so: Python's own stores would tear, and its own numbers rot."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.resources
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from gaia_plugin.errors import Unusable

LIBRARY_NAME: Final = "libgaia_pages.so"


class PageDamaged(Exception):
    """A limits page is not there, or not what it should be; it must be made again."""


class _Number(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_uint64))


@functools.cache
def _library() -> ctypes.CDLL:
    path = Path(str(importlib.resources.files("gaia_plugin") / "lib" / LIBRARY_NAME))
    try:
        library = ctypes.CDLL(str(path))
    except OSError as fault:
        raise Unusable(f"{path} cannot be loaded ({fault}). Run `make install` again.") from fault
    text, handle, word = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
    library.gaia_page_layout.restype = ctypes.POINTER(_Number)
    library.gaia_page_layout.argtypes = [ctypes.POINTER(ctypes.c_size_t)]
    library.gaia_limits_create.argtypes = [text, ctypes.c_uint32]
    library.gaia_usage_create.argtypes = [text, ctypes.c_uint32]
    library.gaia_limits_open.argtypes = [text, ctypes.POINTER(handle)]
    library.gaia_page_close.argtypes = [handle]
    library.gaia_page_close.restype = None
    library.gaia_page_begin.argtypes = [handle]
    library.gaia_page_end.argtypes = [handle]
    library.gaia_page_store.argtypes = [handle, word, word]
    library.gaia_page_load.argtypes = [handle, word, ctypes.POINTER(word)]
    library.gaia_page_wake.argtypes = [handle, word]
    library.gaia_page_heartbeat.argtypes = [handle]
    library.gaia_page_fence.argtypes = []
    library.gaia_page_fence.restype = None
    return library


@functools.cache
def layout() -> Mapping[str, int]:
    """Return offsets, sizes, counts and constants of `gaia_pages.h` by name.

    Raises:
        Unusable: the library is not installed.
    """
    count = ctypes.c_size_t()
    numbers = _library().gaia_page_layout(ctypes.byref(count))
    return MappingProxyType({numbers[i].name.decode(): numbers[i].value for i in range(count.value)})


def create_limits(path: Path, mode: int = 0o600) -> None:
    """Make a limits page that grants nothing, replacing what is at `path`.

    Raises:
        OSError: it cannot be written.
    """
    _check(_library().gaia_limits_create(os.fsencode(path), mode), path)


def create_usage(path: Path, mode: int = 0o600) -> None:
    """Make an empty usage page, replacing what is at `path`.

    Raises:
        OSError: it cannot be written.
    """
    _check(_library().gaia_usage_create(os.fsencode(path), mode), path)


def fence() -> None:
    """Put a full fence between the stores before and the loads after."""
    _library().gaia_page_fence()


def owner_word(pid: int, start: int) -> int:
    """Return the word that marks a place in the pages as belonging to a process."""
    scale = layout()["owner_of_pid"]
    return pid * scale + start % scale


def owner_of(word: int) -> tuple[int, int]:
    """Return pid and start time from the owner word of a place."""
    pid, start = divmod(word, layout()["owner_of_pid"])
    return pid, start


def _check(result: int, path: Path) -> None:
    if result != 0:
        raise OSError(-result, os.strerror(-result), str(path))


class LimitsPage:
    """A limits page mapped for writing; for one thread at a time.

    Raises:
        PageDamaged: there is no such page, it has the wrong size or a foreign header.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = ctypes.c_void_p()
        result = _library().gaia_limits_open(os.fsencode(path), ctypes.byref(self._handle))
        self._sound(result)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the page."""
        if self._handle:
            _library().gaia_page_close(self._handle)
            self._handle = ctypes.c_void_p()

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Bracket stores that readers must see together; a full fence follows the last.

        When the body raises, the group stays open: readers take its words one by one until the next
        writer closes it.

        Raises:
            PageDamaged: the file was truncated meanwhile; nothing was stored.
        """
        self._sound(_library().gaia_page_begin(self._open()))
        yield
        _library().gaia_page_end(self._open())

    def store(self, offset: int, value: int) -> None:
        """Store one word, whole and at once.

        Raises:
            ValueError: the offset is not one of a word of this page, or the value is no word.
        """
        if not 0 <= value < 1 << 64 or not 0 <= offset < 1 << 63:
            raise ValueError(f"{value} at {offset} is not a word of a page")
        if _library().gaia_page_store(self._open(), offset, value) != 0:
            raise ValueError(f"{offset} is not the offset of a word of a limits page")

    def load(self, offset: int) -> int:
        """Return one word.

        Raises:
            ValueError: the offset is not one of a word of this page.
        """
        value = ctypes.c_uint64()
        if _library().gaia_page_load(self._open(), offset, ctypes.byref(value)) != 0:
            raise ValueError(f"{offset} is not the offset of a word of a limits page")
        return value.value

    def wake(self, offset: int) -> None:
        """Change the futex word at `offset` and wake the processes that wait for it."""
        _library().gaia_page_wake(self._open(), offset)

    def heartbeat(self) -> None:
        """Tell the processes of the slot that the agent lives.

        Raises:
            PageDamaged: the file was truncated meanwhile.
        """
        self._sound(_library().gaia_page_heartbeat(self._open()))

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ValueError(f"the page {self._path} is closed")
        return self._handle

    def _sound(self, result: int) -> None:
        if result != 0:
            raise PageDamaged(f"{self._path}: {os.strerror(-result)}")
