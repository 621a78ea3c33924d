"""Processes of this machine, known by pid and start time, because a pid alone comes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DEAD: Final = frozenset("ZXx")
_POLL: Final = 1.0
"""Seconds between looks where the kernel has no pidfd."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What `/proc/PID/stat` says: name, state letter, threads, start in clock ticks since boot."""

    name: str
    state: str
    threads: int
    start: int


_PROC: Final = Path("/proc")


def stat(pid: int, proc: Path = _PROC) -> Stat | None:
    """Return what the kernel says of `pid`; None when there is no such process."""
    try:
        with open(proc / str(int(pid)) / "stat", "rb") as file:
            text = file.read()
    except (OSError, ValueError):
        return None
    return parse_stat(text)


def parse_stat(text: bytes) -> Stat | None:
    """Read the text of a stat file; the name may hold anything, so it ends at the *last* parenthesis."""
    head, _, rest = text.rpartition(b")")
    _, _, name = head.partition(b"(")
    fields = rest.split()
    try:
        # fields count from 3 here: state is 3, threads 20, start time 22
        return Stat(name.decode("utf-8", "replace"), fields[0].decode(), int(fields[17]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def start_time(pid: int, proc: Path = _PROC) -> int | None:
    """Return when `pid` started, in clock ticks since boot; None when it is not there or has ended."""
    found = stat(pid, proc)
    return found.start if found is not None and _lives(found) else None


def alive(pid: int, start: int) -> bool:
    """Tell whether the process that started at `start` still runs under `pid`.

    A zombie counts as ended, for its memory is gone; not so one whose other threads still run.
    """
    return start_time(pid) == start


def process_name(pid: int) -> str:
    """Return the short name of `pid`, for people; empty when it is gone."""
    found = stat(pid)
    return "" if found is None else found.name


def _lives(found: Stat) -> bool:
    return found.state not in _DEAD or found.threads > 1


class Watch:
    """Calls back once, in the running event loop, when a process has ended.

    Args:
        pid: of the process.
        start: its start time; when another process has the pid by now, this one has ended.
        ended: called without arguments, never from within the constructor.
    """

    def __init__(self, pid: int, start: int, ended: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid, self._start, self._ended = pid, start, ended
        self._fd: int | None = None
        self._timer: asyncio.Handle | None = None
        with contextlib.suppress(OSError, OverflowError):
            self._fd = os.pidfd_open(pid)
        # asked after the pidfd was opened: from here on it cannot mean another process
        if not alive(pid, start):
            self._close_fd()
            self._timer = self._loop.call_soon(self._finish)
        elif self._fd is not None:
            self._loop.add_reader(self._fd, self._finish)
        else:
            self._timer = self._loop.call_later(_POLL, self._look)

    def close(self) -> None:
        """Stop watching; `ended` is not called any more."""
        self._close_fd()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if alive(self._pid, self._start):
            self._timer = self._loop.call_later(_POLL, self._look)
        else:
            self._finish()

    def _finish(self) -> None:
        self.close()
        self._ended()

    def _close_fd(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None


async def wait_ended(pid: int, start: int) -> None:
    """Return when the process that started at `start` under `pid` has ended."""
    ended = asyncio.Event()
    watch = Watch(pid, start, ended.set)
    try:
        await ended.wait()
    finally:
        watch.close()
