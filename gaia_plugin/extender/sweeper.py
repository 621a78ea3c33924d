"""Looks for reservations that nobody needs any more: soon after an event of a pod, and by and by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from gaia_plugin.extender import binding
from gaia_plugin.extender.dropping import UNBOUND_SECONDS, drop_reservation
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import GpuNode
from gaia_plugin.kube.pods import Pod, container_ended, path
from gaia_plugin.kube.replica import Change
from gaia_plugin.kube.times import now_text

log = structlog.get_logger(__name__)

EVERY: Final = 15.0
"""Seconds between two looks at all reservations, where no event says that something has happened."""


_AT_ONCE: Final = 500

_Promise = tuple[str, str, str]
"""Node, UID of the pod, and when it was made."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A reservation that may be needed no more."""

    node: str
    uid: str
    pod_path: str
    overdue: bool = False


class Sweeper:
    """Drops reservations.

    Args:
        api: an `Api`.
        snapshot: where reservations are seen.
        pods: those the watch shows, by UID.
        busy: tells whether a bind of a pod is under way here.
        observe: told of every `GPUNode` that a write was answered with.
        at: the time of day as text.
        unbound_seconds: after which a pod that is still bound nowhere has been given up.
    """

    def __init__(
        self,
        api: binding.Server,
        snapshot: Snapshot,
        pods: Mapping[str, Pod],
        *,
        busy: Callable[[str], bool] = lambda _: False,
        observe: Callable[[GpuNode], None] = lambda _: None,
        at: Callable[[], str] = now_text,
        unbound_seconds: float = UNBOUND_SECONDS,
    ) -> None:
        self._api = api
        self._snapshot = snapshot
        self._pods = pods
        self._busy = busy
        self._observe = observe
        self._at = at
        self._unbound_seconds = unbound_seconds
        self._waiting_since: dict[_Promise, float] = {}
        self._woken = asyncio.Event()

    def pod_changed(self, change: Change[Pod]) -> None:
        """Look soon, if the pod has something reserved and it may be needed no more."""
        pod, on = change.item, self._snapshot.reserved_on.get(change.item.uid)
        if not on:
            return
        bound = pod.spec.node_name
        if change.kind == "gone" or pod.terminal or (bound and on - {bound}):
            self._woken.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            self._woken.clear()
            again = await self.sweep()
            try:
                async with asyncio.timeout(1.0 if again else EVERY):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> int:
        """Drop what can be dropped; return how many could not be decided upon now."""
        undecided, still = 0, dict[_Promise, float]()
        uids = list(self._snapshot.reserved_on)
        for first in range(0, len(uids), _AT_ONCE):
            for suspect in list(self.suspects(uids[first : first + _AT_ONCE], still)):
                undecided += not await self._decide(suspect)
            await asyncio.sleep(0)  # kube-scheduler waits for nobody who looks through 20,000 reservations
        self._waiting_since = still
        return undecided

    async def _decide(self, suspect: Suspect) -> bool:
        """Drop a reservation, or find that it stays; False: that is not known yet."""
        if self._busy(suspect.uid):
            return False
        try:
            written = await drop_reservation(
                self._api,
                suspect.node,
                suspect.uid,
                self._snapshot.domain,
                pod_path=suspect.pod_path,
                overdue=suspect.overdue,
                at=self._at(),
            )
        except ApiError as error:
            if not error.conflict:
                log.warning("a reservation stays for now", node=suspect.node, error=str(error))
            return False
        if written is not None:
            self._observe(written)
        return True

    def suspects(self, uids: Iterable[str], still: dict[_Promise, float]) -> Iterator[Suspect]:
        """Yield the reservations of these pods of which the watches say that they may be needed no more.

        `still` gets those whose pod waits, with the monotonic second since which it was seen to.
        """
        now = self._snapshot.clock()
        for uid in uids:
            pod, names = self._pods.get(uid), self._snapshot.reserved_on.get(uid, frozenset())
            if pod is not None and not pod.terminal and names == {pod.spec.node_name}:
                continue
            for name in names:
                title, at, containers = self._reserved(name, uid)
                if pod is not None and pod.spec.node_name is None and not pod.terminal:
                    since = still[name, uid, at] = self._waiting_since.get((name, uid, at), now)
                    if now - since >= self._unbound_seconds:
                        yield Suspect(name, uid, _path_of(pod, title), overdue=True)
                elif pod is None or _done_here(pod, name, containers):
                    yield Suspect(name, uid, _path_of(pod, title))

    def _reserved(self, name: str, uid: str) -> tuple[str, str, set[str]]:
        """Return the title of a pod, when its last reservation was made, and for which containers."""
        node = self._snapshot.nodes.get(name)
        mine = [
            one for one in (node.gpunode.spec.reservations if node and node.gpunode else ()) if one.uid == uid
        ]
        if not mine:
            return "", "", set()
        return mine[0].pod, max(one.at for one in mine), {one.container for one in mine}


def _done_here(pod: Pod, name: str, containers: set[str]) -> bool:
    if pod.spec.node_name and pod.spec.node_name != name:
        return True
    return pod.terminal and all(container_ended(pod, each) for each in containers)


def _path_of(pod: Pod | None, title: str) -> str:
    if pod is not None:
        return path(pod.metadata.namespace, pod.metadata.name)
    namespace, _, name = title.partition("/")
    # a reservation that does not name its pod is none of ours: no pod has an empty name
    return path(namespace or "default", name or "-")
