"""Preemption: whether the pods that kube-scheduler would evict from a node make room on its cards.

kube-scheduler counts a node's cards as one sum and evicts as little as that sum needs. Here its victims are
looked at card by card: a node where they do not help is struck, so that nobody is evicted for nothing. And
nobody is evicted while room is about to come: a victim that is gone is counted until its node has let go of
its card, and kube-scheduler, which does not see that, would take the next one. Nor while room has just come:
kube-scheduler may not have seen yet that the one who held it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from gaia_plugin.errors import Refusal
from gaia_plugin.extender.demand import Demand
from gaia_plugin.extender.fit import fit
from gaia_plugin.extender.node import Node, count
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.extender.wire import Victims
from gaia_plugin.kube.gpunode import Spec

PATIENCE: Final = 60.0
"""Seconds that room which is about to come is waited for; a container that hangs must not block others."""

SEEN_SECONDS: Final = 10.0
"""Seconds after which kube-scheduler has seen that room has come; if it still evicts, something else than
cards is in the way."""


class Preemptor:
    """Looks at what kube-scheduler would evict.

    Args:
        snapshot: of the cluster.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._leaving_since: dict[tuple[str, str], float] = {}
        self._roomier_at: dict[str, float] = {}
        snapshot.listen(self._note)

    def _note(self, node: Node, roomier: bool) -> None:
        if roomier:
            self._roomier_at[node.name] = self._snapshot.clock()

    def review(self, demand: Demand, victims: dict[str, Victims]) -> dict[str, Victims]:
        """Return the nodes on which evicting these pods makes room for the pod; none while room is coming.

        Nodes that Gaia knows nothing of are struck too: the pod could not be bound to them.
        """
        coming = [*self._coming(), *((node, frozenset[str]()) for node in self._just_come())]
        if any(self._makes_room(node, demand, uids) for node, uids in coming):
            return {}
        return {
            name: each
            for name, each in victims.items()
            if (node := self._snapshot.nodes.get(name)) is not None
            and self._snapshot.usable(node)
            and self._makes_room(node, demand, each.uids)
        }

    def _coming(self) -> Iterator[tuple[Node, frozenset[str]]]:
        """Yield the nodes that pods are leaving which have held a card, and which pods these are."""
        now, still = self._snapshot.clock(), {}
        for node in self._snapshot.nodes.values():
            leaving = self._snapshot.leaving(node)
            if not leaving or not self._snapshot.usable(node):
                continue
            for uid in leaving:
                still[node.name, uid] = self._leaving_since.get((node.name, uid), now)
            recent = frozenset(uid for uid in leaving if now - still[node.name, uid] < PATIENCE)
            if recent:
                yield node, recent
        self._leaving_since = still

    def _just_come(self) -> Iterator[Node]:
        """Yield the nodes that may be given pods and have had more room for a moment."""
        now = self._snapshot.clock()
        self._roomier_at = {name: at for name, at in self._roomier_at.items() if now - at < SEEN_SECONDS}
        for name in self._roomier_at:
            node = self._snapshot.nodes.get(name)
            if node is not None and self._snapshot.usable(node):
                yield node

    def _makes_room(self, node: Node, demand: Demand, uids: Collection[str]) -> bool:
        """Tell whether a pod fits on a node once these pods, and all that they hold, are gone."""
        told = node.gpunode
        if told is None:
            return False
        away = {demand.uid, *uids}
        rest = msgspec.structs.replace(
            told,
            spec=Spec(tuple(one for one in told.spec.reservations if one.uid not in away)),
            status=msgspec.structs.replace(
                told.status, slots=tuple(slot for slot in told.status.slots if slot.uid not in away)
            ),
        )
        bound = [each for uid, each in node.bound.items() if uid not in away]
        pending = {uid: parts for uid, parts in node.pending.items() if uid not in away}
        cards = count(rest, bound, pending, domain=self._snapshot.domain).cards
        try:
            fit(demand, cards, node.topology)
        except Refusal:
            return False
        return True
