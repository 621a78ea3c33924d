"""Ends the processes of a container at once, by what nobody else can become: pid and start time."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from gaia_plugin.slots.processes import start_time

_ROUNDS: Final = 5
"""A process may fork while its container is being ended, so it is looked at again."""


class Target(Protocol):
    """A process to be ended."""

    @property
    def pid(self) -> int:
        """Its pid on this machine."""

    @property
    def start(self) -> int:
        """When it started, in clock ticks since boot."""


def kill_all(living: Callable[[], Iterable[Target]]) -> int:
    """Kill what `living` returns until it returns nothing new; return how many processes were killed.

    This process itself and the machine's first one are left alone, whatever `living` says.
    """
    killed: set[tuple[int, int]] = set()
    for _ in range(_ROUNDS):
        new = [(each.pid, each.start) for each in living() if (each.pid, each.start) not in killed]
        if not new:
            break
        for pid, start in new:
            killed.add((pid, start))
            _kill(pid, start)
    return len(killed)


def _kill(pid: int, start: int) -> None:
    if pid <= 1 or pid == os.getpid():
        return
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            # asked after the pidfd was opened: from here on it cannot mean another process
            if start_time(pid) == start:
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)
