"""One agent per state directory, and per kubelet: locks from before the first read until the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from gaia_plugin.errors import Unusable

LOCKED = 17
"""Exit code of an agent that found the state directory taken."""


class Taken(Unusable):
    """Another agent holds the state directory; the sentence names its pid."""


class StateLock:
    """The lock on ``<state>/lock``. The kernel drops it when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, state: Path) -> Self:
        """Make `state` (0700) where it is missing, and lock it.

        Raises:
            Taken: another agent runs there.
            Unusable: the directory cannot be made or written.
        """
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unusable(
                f"The state directory {state} cannot be used: {error.strerror}. Name another one with "
                "--state or GAIA_STATE."
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise Taken(
                f"Another agent ({who}) already serves {state}; this one serves nothing and ends."
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return cls(fd)

    def release(self) -> None:
        """Give the state directory back."""
        os.close(self._fd)


@contextmanager
def only_one(kubelet: Path) -> Iterator[None]:
    """Lock a kubelet's root directory: two agents would take the registration from each other for ever.

    Nothing is written there, and the kernel drops the lock with the process. A directory that is not there
    is not locked: there is no kubelet to register with.

    Raises:
        Taken: another agent, with another state directory, serves this kubelet.
    """
    try:
        fd = os.open(kubelet, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Taken(
                f"Another agent, with another state directory, already serves the kubelet of {kubelet}; this "
                "one serves nothing and ends. A node has one agent: end the other one, or look for a second "
                "DaemonSet."
            ) from error
        yield
    finally:
        os.close(fd)
