"""The nodes that take pods as placement knows them, kept up with the snapshot node by node."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Final

from gaia_plugin.extender.demand import Kind
from gaia_plugin.extender.node import Node
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.placement import CardState, Request
from gaia_plugin.placement.cluster import Ask, Fleet, Mix, NodeState, Options
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD

PLENTY: Final = 1 << 26
"""CPU (thousandths of a core) and memory (MiB) of every host: what is free there is not known here.

kube-scheduler asks only about nodes whose host has room for the pod, and to know more every pod of the
cluster would have to be kept, not only those with slices.
"""

_MOST_KINDS: Final = 128
"""Kinds of pods for which every node is kept looked at: 30 MB at 5,000 nodes."""

_FIRST_HABIT: Final = {Ask((Request(None, CORES_PER_CARD),)): 1}
"""What is usual before any pod was seen: a whole card, so that cards in use are used up first."""


class KeptFleet:
    """A `Fleet` of the nodes that take pods now.

    A node is taken out when its agent is not ready, or has not been heard of for too long: the fleet then
    counts nothing of it, neither for a choice nor for what is kept free.

    Args:
        snapshot: of the cluster.
        options: the rule of placement.
    """

    def __init__(self, snapshot: Snapshot, options: Options | None = None) -> None:
        self._snapshot = snapshot
        self._fleet = Fleet(options, Mix(_FIRST_HABIT), kinds=_MOST_KINDS)
        self._changed: dict[str, None] = dict.fromkeys(snapshot.nodes)
        self._silent_at: list[tuple[float, str]] = []
        """When nodes go silent at the earliest; a heap."""
        self._looked_at: dict[str, float] = {}
        """Which entry of the heap counts for a node."""
        snapshot.listen(self._note)

    @property
    def mix(self) -> Mix:
        """Return the usual mix; whoever tells it of pods makes prices anew when it says so."""
        return self._fleet.mix

    def now(self) -> Fleet:
        """Return the fleet as of now."""
        if self._changed:
            for name in self._changed:
                self._take(name)
            self._changed.clear()
        self._drop_silent()
        return self._fleet

    def order(self, kind: Kind, offered: Collection[str] | None = None) -> Iterator[str]:
        """Go through the nodes that may take a kind of pods, best first; see `Fleet.order`."""
        return self.now().order(Ask(kind), offered)

    def cost(self, card: CardState, share: Share) -> tuple[int, ...]:
        """Return what a card costs that would give a share, for `fit`."""
        return self._fleet.cost(card, share)

    def _note(self, node: Node, roomier: bool) -> None:
        self._changed[node.name] = None

    def _take(self, name: str) -> None:
        node = self._snapshot.nodes.get(name)
        if node is None or not self._snapshot.usable(node):
            self._fleet.drop(name)
            return
        self._fleet.put(NodeState(name, node.cards, PLENTY, PLENTY, node.topology))
        silent_at = self._silent_from(node)
        if silent_at < self._looked_at.get(name, inf):
            self._look_at(silent_at, name)

    def _look_at(self, moment: float, name: str) -> None:
        self._looked_at[name] = moment
        heappush(self._silent_at, (moment, name))

    def _drop_silent(self) -> None:
        now = self._snapshot.clock()
        while self._silent_at and self._silent_at[0][0] < now:
            moment, name = heappop(self._silent_at)
            if self._looked_at.get(name) != moment:
                continue
            node = self._snapshot.nodes.get(name)
            if node is None or self._snapshot.silent(node, now):
                del self._looked_at[name]
                self._fleet.drop(name)
            else:
                self._look_at(max(now, self._silent_from(node)), name)

    def _silent_from(self, node: Node) -> float:
        return node.beat.since + self._snapshot.stale_seconds if node.beat is not None else -inf
