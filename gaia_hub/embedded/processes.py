"""Processes that must not outlive whoever started them.

Three nets, each for the case in which the others do not hold: the kernel signals a child when its
parent dies (PDEATHSIG), a mark in the environment finds what left its process group (Jupyter starts
every kernel in a session of its own), and a subreaper keeps orphans below the process that started
everything, so that the last sweep finds them as descendants.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Let orphaned descendants come to this process instead of pid 1."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(signum: int = signal.SIGTERM) -> Callable[[], None]:
    """Return a `preexec_fn` after which the child gets `signum` when the calling thread's process ends.

    Call this in the parent: its pid is taken here, so that a parent which died in between is seen.
    """
    parent = os.getpid()

    def before_exec() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, None if it is gone.

    A pid comes back after a while; pid and start time together never do.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[19])


def is_running(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    return _state(pid) not in (None, b"Z", b"X")


def _state(pid: int) -> bytes | None:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return None


def _all_pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def descendants(root: int) -> list[int]:
    """Return the pids below `root`, at any depth, without `root`."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        with suppress(OSError, IndexError, ValueError):
            parent = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def marked(name: str, value: str) -> list[int]:
    """Return the pids whose environment at start had `name` set to `value`, without this process."""
    wanted = f"{name}={value}".encode()
    found = []
    for pid in _all_pids():
        if pid == os.getpid():
            continue
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def reap() -> None:
    """Collect dead children, also adopted ones, that nobody else waits for."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def reap_adopted(own: set[int]) -> None:
    """Collect dead orphans that came to this subreaper; `own` are children that somebody waits for."""
    with suppress(ChildProcessError):
        while True:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if dead is None or dead.si_pid in own:
                return
            os.waitpid(dead.si_pid, os.WNOHANG)


def signal_all(pids: Iterable[int], signum: int) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def end_all(find: Callable[[], list[int]], grace: float, *, also_reap: bool = False) -> list[int]:
    """End what `find` finds: SIGTERM, up to `grace` seconds, then SIGKILL until nothing is left.

    `find` is asked again each time, because a dying process may still start another. Blocks; call
    it in a thread. Returns the pids that even SIGKILL did not end within 5 seconds.
    """

    def living() -> list[int]:
        if also_reap:
            reap()
        return [pid for pid in find() if is_running(pid)]

    for signum, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + seconds
        told: set[int] = set()
        while pids := living():
            if time.monotonic() >= deadline and told:
                break
            fresh = pids if signum == signal.SIGKILL else [pid for pid in pids if pid not in told]
            signal_all(fresh, signum)
            told.update(pids)
            _wait_any(pids, 0.1)
    return living()


def _wait_any(pids: list[int], seconds: float) -> None:
    """Wait until one of the processes ends, at most `seconds`."""
    descriptors = []
    try:
        for pid in pids[:64]:
            with suppress(OSError):
                descriptors.append(os.pidfd_open(pid))
        if descriptors:
            select.select(descriptors, [], [], seconds)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
