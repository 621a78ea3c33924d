"""The cluster in memory: kept up by the events of three watches, never rebuilt for a request.

Belongs to one event loop. Whatever changes a node settles it: its cards are counted again, those who
listen are told, and told too whether there is more room than before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from gaia_plugin.extender import heartbeat
from gaia_plugin.extender.fit import Placed
from gaia_plugin.extender.kinds import Machine
from gaia_plugin.extender.node import (
    Bound,
    CardClasses,
    Node,
    booked_by,
    bound_of,
    count,
    topology_of,
)
from gaia_plugin.kube.gpunode import GpuNode
from gaia_plugin.kube.pods import DOMAIN, Pod
from gaia_plugin.kube.replica import Change
from gaia_plugin.placement import CardState
from gaia_plugin.shares import NOTHING

Told = Callable[[Node, bool], None]
"""Called with a node that has changed, and whether it has more room than before."""


def _utc() -> datetime:
    return datetime.now(UTC)


class Snapshot:
    """Every node with a `GPUNode` or a Node, and every pod that waits for a slice.

    Args:
        domain: of resources and annotations.
        stale_seconds: after which a heartbeat that does not change is stale.
        clock: monotonic seconds.
        wall: the time of day.
    """

    def __init__(
        self,
        domain: str = DOMAIN,
        *,
        stale_seconds: float = heartbeat.STALE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = _utc,
    ) -> None:
        self.domain = domain
        self.clock = clock
        self.classes = CardClasses()
        self.nodes: dict[str, Node] = {}
        self.waiting: dict[str, Pod] = {}
        """Pods that want a slice and are bound nowhere, by UID, in the order in which they came."""
        self.reserved_on: dict[str, frozenset[str]] = {}
        """Nodes that have a reservation for a pod, by its UID."""
        self._wall = wall
        self.stale_seconds = stale_seconds
        self._bound_to: dict[str, str] = {}
        self._listeners: list[Told] = []

    def listen(self, told: Told) -> None:
        """Call `told` after each change of a node; it must not wait."""
        self._listeners.append(told)

    def usable(self, node: Node) -> bool:
        """Tell whether a node may be given a pod now."""
        return node.machine and node.ready and not self.silent(node)

    def silent(self, node: Node, now: float | None = None) -> bool:
        """Tell whether a node's agent has not been heard of for too long; `now` spares the clock."""
        moment = self.clock() if now is None else now
        return node.beat is None or node.beat.stale(moment, self.stale_seconds)

    def cards_for(self, node: Node, uid: str) -> tuple[CardState, ...]:
        """Return a node's cards as they are for a pod: what is reserved for itself is free to it."""
        own = uid in node.pending or uid in node.bound or node.name in self.reserved_on.get(uid, ())
        if not own or node.gpunode is None:
            return node.cards
        return count(node.gpunode, node.bound.values(), node.pending, domain=self.domain, leave_out=uid).cards

    def leaving(self, node: Node) -> frozenset[str]:
        """Return the pods that still count on a node and are about to go, or gone already, by UID."""
        found = set()
        for uid in {holder.uid for holder in node.known} | node.bound.keys():
            bound = node.bound.get(uid)
            if bound is not None:
                if bound.pod.terminating:
                    found.add(uid)
            elif uid not in self.waiting and uid not in node.pending:
                found.add(uid)
        return frozenset(found)

    # What the watches tell

    def pod_changed(self, change: Change[Pod]) -> None:
        """Take in what happened to a pod."""
        pod, gone = change.item, change.kind == "gone"
        name = pod.spec.node_name
        if gone or name or pod.terminating or pod.terminal:
            self.waiting.pop(pod.uid, None)
        else:
            self.waiting[pod.uid] = pod
        bound = bound_of(pod, self.domain) if name and not gone else None
        where = name if bound is not None and bound.containers else None
        before = self._bound_to.pop(pod.uid, None)
        if before is not None and before != where:
            self._unbind(before, pod.uid)
        if where is not None and bound is not None:
            self._bound_to[pod.uid] = where
            self._bind(where, bound)

    def _bind(self, name: str, bound: Bound) -> None:
        node, uid = self._node(name), bound.pod.uid
        same = uid in node.bound and node.bound[uid].containers == bound.containers
        node.bound[uid] = bound
        if not same and not all((uid, each) in node.known for each in bound.containers):
            self._settle(node)

    def _unbind(self, name: str, uid: str) -> None:
        node = self.nodes[name]
        bound = node.bound.pop(uid, None)
        if bound is not None and not all((uid, each) in node.known for each in bound.containers):
            self._settle(node)
        self._tidy(name)

    def gpunode_changed(self, change: Change[GpuNode]) -> None:
        """Take in what happened to a `GPUNode`."""
        item = None if change.kind == "gone" else change.item
        node = self._node(change.item.metadata.name)
        before = node.gpunode
        if item is None and before is not None and before.metadata.uid != change.item.metadata.uid:
            return  # the old object of a node that has a new one already
        was_usable, links = self.usable(node), node.topology
        anew = before is None or item is None or before.metadata.uid != item.metadata.uid
        self._index_reservations(node.name, before, item)
        node.gpunode = item
        if item is None:
            node.beat = None
        else:
            node.beat = heartbeat.seen(
                None if anew else node.beat, item.status.heartbeat, self.clock(), self._wall()
            )
            if before is None or _links(before) != _links(item):
                node.topology = topology_of(item)
        turned = was_usable != self.usable(node)
        changed = turned or anew or node.topology is not links
        if changed or before is None or item is None or _says(before) != _says(item):
            self._settle(node, woke=turned and not was_usable, changed=changed)
        self._tidy(node.name)

    def machine_changed(self, change: Change[Machine]) -> None:
        """Take in what happened to a Node."""
        there = change.kind != "gone"
        node = self._node(change.item.metadata.name)
        if node.machine == there:
            return  # what else is in a Node is kube-scheduler's part
        was_usable = self.usable(node)
        node.machine = there
        turned = was_usable != self.usable(node)
        self._settle(node, woke=turned and not was_usable, changed=turned)
        self._tidy(node.name)

    # Binds under way

    def assume(self, name: str, uid: str, where: Placed) -> None:
        """Count a bind under way, before anything of it is written."""
        node, booked = self._node(name), booked_by(uid, where)
        if node.pending.get(uid) != booked:
            node.pending[uid] = booked
            self._settle(node)

    def forget(self, name: str, uid: str) -> None:
        """Count a bind under way no more: it is written and seen, or has failed."""
        node = self.nodes.get(name)
        if node is not None and node.pending.pop(uid, None) is not None:
            self._settle(node)
            self._tidy(name)

    # Within

    def _node(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name)
        return node

    def _tidy(self, name: str) -> None:
        """Forget a node of which nothing is left."""
        node = self.nodes.get(name)
        if node and not (node.machine or node.gpunode or node.bound or node.pending):
            del self.nodes[name]

    def _index_reservations(self, name: str, before: GpuNode | None, after: GpuNode | None) -> None:
        old = {one.uid for one in before.spec.reservations} if before else set()
        new = {one.uid for one in after.spec.reservations} if after else set()
        for uid in old - new:
            left = self.reserved_on.get(uid, frozenset()) - {name}
            if left:
                self.reserved_on[uid] = left
            else:
                self.reserved_on.pop(uid, None)
        for uid in new - old:
            self.reserved_on[uid] = self.reserved_on.get(uid, frozenset()) | {name}

    def _settle(self, node: Node, *, woke: bool = False, changed: bool = False) -> None:
        """Count a node's cards again and tell who listens if that changed anything.

        `woke`: it may be given pods now and might not before; `changed`: something else than its cards has.
        """
        before = node.cards
        item = node.gpunode
        cards: tuple[CardState, ...] = ()
        node.known = frozenset()
        if item is not None:
            cards, node.known = count(item, node.bound.values(), node.pending, domain=self.domain)
        if cards != before:
            node.put(cards, self.classes)
        elif not changed:
            return
        roomier = woke or _roomier(before, node.cards)
        for told in self._listeners:
            told(node, roomier)


def _links(node: GpuNode) -> object:
    return [(card.uuid, card.links) for card in node.status.cards]


def _says(node: GpuNode) -> object:
    """Return what counts of an object; a heartbeat alone changes nothing of it."""
    return (
        node.spec.reservations,
        [(card.uuid, card.model, card.healthy, card.capacity) for card in node.status.cards],
        [(slot.uid, slot.container, slot.slices) for slot in node.status.slots],
    )


def _roomier(before: tuple[CardState, ...], after: tuple[CardState, ...]) -> bool:
    """Tell whether something may fit now that did not before."""
    old: Mapping[str, CardState] = {card.uuid: card for card in before}
    for card in after:
        was = old.get(card.uuid)
        room = card.free if card.healthy else NOTHING
        had = was.free if was is not None and was.healthy else NOTHING
        if room.units > had.units or room.cores > had.cores:
            return True
    return False
