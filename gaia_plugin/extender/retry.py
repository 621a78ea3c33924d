"""Tells the scheduler to look again at pods that wait, when there is room for them.

A pod that an extender has refused is not asked about again before something happens in the cluster or five
minutes have passed; a write to the pod is such an event, and it is asked about within some 60 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from gaia_plugin.errors import Refusal
from gaia_plugin.extender.binding import SECONDS
from gaia_plugin.extender.choose import Chooser
from gaia_plugin.extender.demand import Demand, Kind, demand_or_refusal
from gaia_plugin.extender.dropping import retry_key
from gaia_plugin.extender.fit import without
from gaia_plugin.extender.node import Node
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod, path
from gaia_plugin.kube.replica import Change
from gaia_plugin.kube.times import now_text
from gaia_plugin.placement import CardState

log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 0.05
"""Changes that come together are answered together."""

EVERY: Final = 10.0
_LOOKED_AT_A_SECOND: Final = 20_000
_AT_ONCE: Final = 16
"""Pods that are written to at the same time."""

_OFTEN: Final = 5
"""So often in vain, and a pod is told in growing distances: something else than a card is in its way."""

_FIRST, _MOST = 10.0, 300.0
_MOST_REFUSED: Final = 200_000
_STANDBY_SECONDS: Final = 2.0
"""A replica that kube-scheduler does not ask leaves it to the other one for so long."""


class Patcher(Protocol):
    """What is needed of an `Api`."""

    async def patch(self, path: str, body: dict[str, object], *, timeout: float) -> bytes:
        """Send a JSON merge patch."""


@dataclass(slots=True)
class Told:
    """How often a pod has been told of room, and when last."""

    times: int
    last: float


class Refusals:
    """The pods that found no node when kube-scheduler asked last; all others it asks about by itself."""

    def __init__(self) -> None:
        self.uids: set[str] = set()

    def note(self, uid: str, *, refused: bool) -> None:
        """Note an answer of filter's."""
        if refused and len(self.uids) < _MOST_REFUSED:
            self.uids.add(uid)
        elif not refused:
            self.uids.discard(uid)

    def pod_changed(self, change: Change[Pod]) -> None:
        """Forget a pod that waits no more."""
        pod = change.item
        if change.kind == "gone" or pod.spec.node_name or pod.terminating or pod.terminal:
            self.uids.discard(pod.uid)


class Retrier:
    """Annotates waiting pods for which there is room.

    Args:
        api: an `Api`.
        snapshot: of the cluster.
        chooser: of nodes.
        refusals: the pods that kube-scheduler was told to have no node for.
        busy: tells whether a bind of a pod is under way here.
        active: tells whether kube-scheduler asks this replica.
        at: the time of day as text.
        pause: waits; for tests.
    """

    def __init__(
        self,
        api: Patcher,
        snapshot: Snapshot,
        chooser: Chooser,
        refusals: Refusals,
        *,
        busy: Callable[[str], bool] = lambda _: False,
        active: Callable[[], bool] = lambda: True,
        at: Callable[[], str] = now_text,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._snapshot = snapshot
        self._chooser = chooser
        self._refusals = refusals
        self._busy = busy
        self._active = active
        self._at = at
        self._pause = pause
        self._told: dict[str, Told] = {}
        self._demands: dict[str, Demand | Refusal] = {}
        self._room_at = snapshot.clock()
        self._woken = asyncio.Event()
        snapshot.listen(self._changed)

    def begin(self) -> None:
        """Tell every waiting pod for which there is room once: before this start others were asked."""
        self._refusals.uids.update(self._snapshot.waiting)
        self._woken.set()

    def _changed(self, node: Node, roomier: bool) -> None:
        if roomier and self._refusals.uids:
            self._room_at = self._snapshot.clock()
            self._woken.set()

    async def run(self) -> None:
        """Tell pods until cancelled."""
        while True:
            try:
                async with asyncio.timeout(EVERY):
                    await self._woken.wait()
            except TimeoutError:
                pass
            # the more there are to be looked at, the less often
            await self._pause(max(SETTLE_SECONDS, len(self._refusals.uids) / _LOOKED_AT_A_SECOND))
            self._woken.clear()
            await self.tell()

    async def tell(self) -> int:
        """Annotate the pods that are due; return how many were."""
        key = retry_key(self._snapshot.domain)
        pods = list(self.due())
        if pods and not self._active():
            before = {pod.uid: pod.annotations.get(key) for pod in pods}
            await self._pause(_STANDBY_SECONDS)
            pods = [pod for pod in self.due() if before.get(pod.uid, "") == pod.annotations.get(key)]
        for first in range(0, len(pods), _AT_ONCE):
            await asyncio.gather(*(self._write(pod, key) for pod in pods[first : first + _AT_ONCE]))
        return len(pods)

    async def _write(self, pod: Pod, key: str) -> None:
        told = self._told.setdefault(pod.uid, Told(0, 0.0))
        told.times, told.last = told.times + 1, self._snapshot.clock()
        metadata = {"uid": pod.uid, "annotations": {key: self._at()}}
        where = path(pod.metadata.namespace, pod.metadata.name)
        try:
            await self._api.patch(where, {"metadata": metadata}, timeout=SECONDS)
        except ApiError as error:
            if not (error.missing or error.conflict):
                log.warning("a waiting pod was not told of room", pod=pod.title, error=str(error))

    def due(self) -> Iterator[Pod]:
        """Yield the pods to be told: as many as the room is enough for, who was told least often first."""
        waiting = self._snapshot.waiting
        self._told = {uid: told for uid, told in self._told.items() if uid in waiting}
        self._demands = {uid: demand for uid, demand in self._demands.items() if uid in waiting}
        now, taken = self._snapshot.clock(), _Overlay(self._snapshot, self._chooser)
        refused = self._refusals.uids
        pods = [pod for uid, pod in waiting.items() if uid in refused] if refused else []
        for pod in sorted(pods, key=lambda each: self._times(each.uid)):
            demand = self._demands.get(pod.uid)
            if demand is None:
                demand = self._demands[pod.uid] = demand_or_refusal(pod, self._snapshot.domain)
            if isinstance(demand, Refusal) or not demand.kind or self._busy(pod.uid):
                continue
            if self._may(pod.uid, now) and taken.take(demand):
                yield pod

    def _times(self, uid: str) -> int:
        told = self._told.get(uid)
        return told.times if told else 0

    def _may(self, uid: str, now: float) -> bool:
        told = self._told.get(uid)
        if told is None or (told.times < _OFTEN and told.last < self._room_at):
            return True
        return now - told.last >= min(_MOST, _FIRST * 2.0 ** min(told.times - 1, 10))


class _Overlay:
    """The room there is, less what the pods will take that are told in this round."""

    def __init__(self, snapshot: Snapshot, chooser: Chooser) -> None:
        self._snapshot = snapshot
        self._chooser = chooser
        self._cards: dict[str, list[CardState]] = {}
        self._nodes: dict[Kind, deque[str]] = {}
        """By kind, the nodes that may still take it: room only goes in a round."""

    def take(self, demand: Demand) -> bool:
        """Take the room for a pod, if there is any."""
        names = self._nodes.get(demand.kind)
        if names is None:
            names = self._nodes[demand.kind] = deque(self._chooser.fleet.order(demand.kind))
        while names:
            node = self._snapshot.nodes[names[0]]
            cards = self._cards.get(node.name) or list(self._snapshot.cards_for(node, demand.uid))
            where = self._chooser.place(demand, node, cards)
            if where is not None:
                self._cards[node.name] = without(cards, [part for each in where.values() for part in each])
                return True
            names.popleft()
        return False
