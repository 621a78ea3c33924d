"""Which processes are in which slot, and by which pid this machine knows them.

A usage page names processes by the pid that they have themselves. On one machine that is the pid that
everybody sees; in a container it is one of the container's pid namespace, and only the kernel can say
which process is meant. What decides there is its cgroup, which no tenant can leave.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gaia_plugin import paths
from gaia_plugin.slots.names import slot_owner
from gaia_plugin.slots.processes import alive, start_time

LOOK_EVERY: Final = 0.2
"""Seconds between two looks at all processes of the machine."""


class Members(Protocol):
    """Answers for processes of slots."""

    def host_pid(self, slot: str, pid: int, start: int) -> int | None:
        """Return the pid of the living process that `slot` calls `pid`; None when it has ended."""
        ...

    def contains(self, slot: str, pid: int) -> bool:
        """Tell whether the process with this pid of the machine is in `slot`."""
        ...


class LocalMembers:
    """Slots of one machine: a process is in the slot whose environment it was started with.

    Args:
        slots: the directory of all slots.
    """

    def __init__(self, slots: Path) -> None:
        self._slots = slots

    def host_pid(self, slot: str, pid: int, start: int) -> int | None:
        """Return `pid` itself while it lives."""
        return pid if alive(pid, start) else None

    def contains(self, slot: str, pid: int) -> bool:
        """Tell whether the process was started with this slot's environment."""
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        socket = self._slots / slot / paths.SLOT_SOCKET
        return b"GAIA_SLOT_SOCKET=" + os.fsencode(socket) in environ.split(b"\0")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A process of a container, as the kernel shows it."""

    start: int
    inner_pid: int
    cgroup: str
    directory: tuple[int, int] | None


class ContainerMembers:
    """Slots of pods: a process is in the slot of the container whose cgroup it is in.

    The cgroup names the pod; which of its containers it is, the directory mounted at /run/gaia says.
    This process must see all processes of the machine (``hostPID``).

    Args:
        slots: the directory of all slots, named after pod UID and container.
        proc: where the kernel shows processes.
        clock: seconds, monotonic.
    """

    def __init__(
        self, slots: Path, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slots = slots
        self._proc = proc
        self._clock = clock
        self._looked: float | None = None
        self._seen: dict[int, _Seen] = {}

    def host_pid(self, slot: str, pid: int, start: int) -> int | None:
        """Return the pid, on this machine, of the process that `slot` calls `pid`; None: it has ended."""
        found = self._find(slot, pid, start)
        if found is None and self._due():
            self._look()
            found = self._find(slot, pid, start)
        return found

    def contains(self, slot: str, pid: int) -> bool:
        """Tell whether the process with this pid of the machine is in the slot's container."""
        seen = self._of(pid)
        return seen is not None and self._is_in(slot, seen)

    def _find(self, slot: str, pid: int, start: int) -> int | None:
        for host, seen in self._seen.items():
            if seen.inner_pid == pid and seen.start == start and self._is_in(slot, seen):
                return host if start_time(host, self._proc) == start else None
        return None

    def _is_in(self, slot: str, seen: _Seen) -> bool:
        try:
            uid, _ = slot_owner(slot)
        except ValueError:
            return False
        if f"pod{uid}" not in seen.cgroup and f"pod{uid.replace('-', '_')}" not in seen.cgroup:
            return False
        if seen.directory is None:
            return True  # it changed its root: the cgroup alone decides
        try:
            own = os.stat(self._slots / slot)
        except OSError:
            return True
        return seen.directory == (own.st_dev, own.st_ino)

    def _due(self) -> bool:
        return self._looked is None or self._clock() - self._looked >= LOOK_EVERY

    def _look(self) -> None:
        """Look at all processes; those known by pid and start time are not read again."""
        self._looked = self._clock()
        pids = {int(entry) for entry in os.listdir(self._proc) if entry.isdigit()}
        for gone in set(self._seen) - pids:
            del self._seen[gone]
        for pid in pids:
            self._of(pid)

    def _of(self, pid: int) -> _Seen | None:
        start = start_time(pid, self._proc)
        known = self._seen.get(pid)
        if start is None:
            self._seen.pop(pid, None)
            return None
        if known is not None and known.start == start:
            return known
        self._seen.pop(pid, None)
        seen = self._read(pid, start)
        if seen is not None:
            self._seen[pid] = seen
        return seen

    def _read(self, pid: int, start: int) -> _Seen | None:
        place = self._proc / str(pid)
        try:
            cgroup = (place / "cgroup").read_text()
            status = (place / "status").read_text()
        except (OSError, UnicodeDecodeError):
            return None
        inner = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
        if not inner or "pod" not in cgroup:
            return _Seen(start, pid, "", None)
        return _Seen(start, int(inner[0][-1]), cgroup, self._mounted(place))

    @staticmethod
    def _mounted(place: Path) -> tuple[int, int] | None:
        try:
            found = os.stat(place / "root" / paths.CONTAINER_SLOT.relative_to("/"))
        except OSError:
            return None
        return found.st_dev, found.st_ino
