"""Which processes are in which slot, and by which pid this machine knows them.

A usage page names processes by the pid that they have themselves. On one machine that is the pid that
everybody sees; in a container it is one of the container's pid namespace, and only the kernel can say
which process is meant. What decides there is its cgroup, which no tenant can leave.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gaia_plugin import paths
from gaia_plugin.slots.names import slot_owner
from gaia_plugin.slots.processes import alive, start_time

LOOK_EVERY: Final = 0.2
"""Seconds between two looks at all processes of the machine; more where a look takes long."""

_SETTLED: Final = 60.0
"""Seconds after which a process that is in no pod stays in none."""

_MOST_DEAD: Final = 100_000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_UID: Final = "[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_CGROUP: Final = re.compile(rf"pod(?P<pod>{_UID})(?:\.slice)?/(?:[a-z-]+-)?(?P<container>[0-9a-f]{{64}})")
"""`pod<uid>` (with `_` under systemd), then the runtime's ID of the container, with or without a prefix."""


class Members(Protocol):
    """Answers for processes of slots."""

    def host_pid(self, slot: str, pid: int, start: int) -> int | None:
        """Return the pid of the living process that `slot` calls `pid`; None when it has ended.

        0 where that cannot be told yet.
        """
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
    """A process as the kernel shows it; `pod` and `container` are empty outside of pods."""

    start: int
    inner_pid: int
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the kernel shows a process that lives.

    `pod` is the UID of its pod and `container` the runtime's ID of its container; both are empty outside of
    pods. `name` is the container's name, empty while the API server has not shown whose ID that is.
    """

    pid: int
    start: int
    inner_pid: int
    pod: str = ""
    container: str = ""
    name: str = ""


class ContainerMembers:
    """Slots of pods: a process is in the slot of the container whose cgroup it is in.

    The cgroup names the pod and the runtime's ID of the container; whose ID that is, the API server
    says. A process of a pod whose container is not known there yet counts for each slot of the pod.
    Nothing that a tenant can change is asked: neither its environment nor its root.

    This process must see all processes of the machine (``hostPID``). Methods may be called from any thread.

    Args:
        slots: the directory of all slots, named after pod UID and container.
        names: names of a pod's containers by their runtime's IDs, by the pod's UID; as far as known.
        proc: where the kernel shows processes.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        slots: Path,
        names: Callable[[str], Mapping[str, str]] = lambda uid: {},
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names = names
        self._slots = slots
        self._proc = proc
        self._clock = clock
        self._next_look = -math.inf
        self._seen: dict[int, _Seen] = {}
        self._hosts: dict[tuple[int, int], set[int]] = {}
        self._dead: set[tuple[str, int, int]] = set()
        self._lock = threading.RLock()

    def host_pid(self, slot: str, pid: int, start: int) -> int | None:
        """Return the pid, on this machine, of the process that `slot` calls `pid`; None: it has ended.

        0 where that cannot be told yet: it has to be counted among the living.
        """
        with self._lock:
            return self._host_pid(slot, pid, start)

    def contains(self, slot: str, pid: int) -> bool:
        """Tell whether the process with this pid of the machine is in the slot's container."""
        with self._lock:
            seen = self._of(pid)
            return seen is not None and self._is_in(slot, seen)

    def place(self, pid: int) -> Place | None:
        """Return where the process with this pid of the machine is; None: it has ended."""
        with self._lock:
            seen = self._of(pid)
            return None if seen is None else self._place(pid, seen)

    def elsewhere(self, slot: str, pid: int, start: int) -> list[Place]:
        """Return the living processes outside of `slot` that call themselves `pid` and began at `start`.

        Another container has such a twin now and then by chance: it proves nothing by itself.
        """
        with self._lock:
            twins = [(host, self._of(host)) for host in list(self._hosts.get((pid, start), ()))]
            return [self._place(host, seen) for host, seen in twins if seen and not self._is_in(slot, seen)]

    def living(self, pod: str, container: str) -> list[Place]:
        """Return the processes that live now in the container with the runtime's ID `container`.

        The one that is the first of its pid namespace comes first: without it the others end, too.
        """
        with self._lock:
            self._look()
            found = [
                self._place(host, seen)
                for host, seen in self._seen.items()
                if pod and container and (seen.pod, seen.container) == (pod, container)
            ]
        return sorted(found, key=lambda place: place.inner_pid)

    def _place(self, pid: int, seen: _Seen) -> Place:
        name = self.names(seen.pod).get(seen.container, "") if seen.pod else ""
        return Place(pid, seen.start, seen.inner_pid, seen.pod, seen.container, name)

    def _host_pid(self, slot: str, pid: int, start: int) -> int | None:
        found = self._find(slot, pid, start)
        if found is not None:
            return found
        if (slot, pid, start) in self._dead:
            return None
        if self._clock() < self._next_look:
            return 0
        self._look()
        found = self._find(slot, pid, start)
        if found is None:
            # it was not there in a look that began after it was asked about; such a pair never comes back
            if len(self._dead) >= _MOST_DEAD:
                self._dead.clear()
            self._dead.add((slot, pid, start))
        return found

    def _find(self, slot: str, pid: int, start: int) -> int | None:
        for host in self._hosts.get((pid, start), ()):
            if self._is_in(slot, self._seen[host]):
                return host if start_time(host, self._proc) == start else None
        return None

    def _is_in(self, slot: str, seen: _Seen) -> bool:
        try:
            uid, container = slot_owner(slot)
        except ValueError:
            return False
        return seen.pod == uid and self.names(uid).get(seen.container, container) == container

    def _look(self) -> None:
        """Look at all processes; those known by pid and start time are not read again."""
        began = self._clock()
        pids = {int(entry) for entry in os.listdir(self._proc) if entry.isdigit()}
        for gone in set(self._seen) - pids:
            self._drop(gone)
        for pid in pids:
            self._of(pid)
        now = self._clock()
        # on a machine with very many processes, no more than a part of the time goes into looking
        self._next_look = now + max(LOOK_EVERY, 20 * (now - began))

    def _of(self, pid: int) -> _Seen | None:
        start = start_time(pid, self._proc)
        known = self._seen.get(pid)
        if start is None:
            self._drop(pid)
            return None
        # a runtime starts a process in its own cgroup and moves it then
        if known is not None and known.start == start and (known.pod or self._age(start) > _SETTLED):
            return known
        self._drop(pid)
        seen = self._read(pid, start)
        if seen is not None:
            self._seen[pid] = seen
            self._hosts.setdefault((seen.inner_pid, start), set()).add(pid)
        return seen

    def _drop(self, pid: int) -> None:
        seen = self._seen.pop(pid, None)
        if seen is not None:
            key = (seen.inner_pid, seen.start)
            self._hosts[key].discard(pid)
            if not self._hosts[key]:
                del self._hosts[key]

    def _read(self, pid: int, start: int) -> _Seen | None:
        place = self._proc / str(pid)
        try:
            found = _CGROUP.search((place / "cgroup").read_text())
            if found is None:
                return _Seen(start, pid)
            status = (place / "status").read_text()
        except (OSError, UnicodeDecodeError):
            return None
        inner = [line.split() for line in status.splitlines() if line.startswith("NSpid:")]
        inner_pid = int(inner[0][-1]) if inner else pid
        return _Seen(start, inner_pid, found["pod"].replace("_", "-"), found["container"])

    @staticmethod
    def _age(start: int) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - start / _TICKS
