"""Which node takes a pod: the decision behind `filter`. It reads the snapshot and writes nothing.

One node is chosen here, not left to kube-scheduler: it picks at random among equals, and knows no more of
cards than a score from 0 to 10.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gaia_plugin.errors import Refusal
from gaia_plugin.extender import reasons
from gaia_plugin.extender.demand import Demand, Kind
from gaia_plugin.extender.fit import Placed, fit
from gaia_plugin.extender.index import HOPELESS, Index, Why
from gaia_plugin.extender.node import Node
from gaia_plugin.extender.snapshot import Snapshot

_MOST_KINDS: Final = 64
"""Kinds of pods whose order of nodes is kept up; a change of a node touches each of them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The node that takes a pod, and where on it; or why each node that was offered does not."""

    node: str | None = None
    where: Placed = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """May fit later, or after others have left."""
    hopeless: dict[str, str] = field(default_factory=dict)
    """Would not fit if nothing ran there: nobody need be evicted for it."""


class Chooser:
    """Chooses nodes on a snapshot; keeps the order of nodes for the kinds of pods seen lately."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._indexes: OrderedDict[Kind, Index] = OrderedDict()
        snapshot.listen(self._changed)

    def choose(self, demand: Demand, offered: Sequence[str]) -> Choice:
        """Choose among the nodes that kube-scheduler offers; equal input, equal answer."""
        promised = self._promised(demand, offered)
        if promised is not None:
            return promised
        index = self.index(demand.kind)
        names = set(offered)
        struck: list[str] = []
        found: Choice | None = None
        for _, name in index.order:
            if name not in names:
                continue
            node = self._snapshot.nodes[name]
            if not self._snapshot.usable(node):
                continue
            where = self.place(demand, node)
            if where is not None:
                found = Choice(name, where)
                break
            struck.append(name)
        for name in struck:
            index.strike(name)
        return found or self._refused(demand, offered, index)

    def place(self, demand: Demand, node: Node) -> Placed | None:
        """Return where a pod goes on a node, or None."""
        try:
            return fit(demand, self._snapshot.cards_for(node, demand.uid), self._snapshot.topology(node))
        except Refusal:
            return None

    def index(self, kind: Kind) -> Index:
        """Return the order of nodes for a kind, as of now."""
        index = self._indexes.get(kind)
        if index is None:
            index = self._indexes[kind] = Index(kind, self._snapshot.classes, self._snapshot.nodes)
            if len(self._indexes) > _MOST_KINDS:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(kind)
        index.refresh()
        return index

    def _changed(self, node: Node, roomier: bool) -> None:
        for index in self._indexes.values():
            index.touch(node.name)

    def _promised(self, demand: Demand, offered: Iterable[str]) -> Choice | None:
        """Return the node that has a reservation for this pod already, from a bind that failed later on."""
        mine = self._snapshot.reserved_on.get(demand.uid, frozenset())
        for name in sorted(mine.intersection(offered)) if mine else ():
            node = self._snapshot.nodes.get(name)
            if node is not None and self._snapshot.usable(node):
                where = self.place(demand, node)
                if where is not None:
                    return Choice(name, where)
        return None

    def _refused(self, demand: Demand, offered: Sequence[str], index: Index) -> Choice:
        """Say why, in as many sentences as there are reasons."""
        nodes, now = self._snapshot.nodes, self._snapshot.clock()
        groups: defaultdict[Why, list[Node]] = defaultdict(list)
        choice = Choice()
        for name in offered:
            node = nodes.get(name)
            if node is None or node.gpunode is None:
                choice.hopeless[name] = reasons.NO_AGENT
            elif self._snapshot.silent(node, now):
                choice.hopeless[name] = reasons.SILENT
            elif not node.ready or not node.machine:
                choice.hopeless[name] = reasons.NOT_READY
            else:
                groups[index.why.get(name, Why.FULL)].append(node)
        for why, members in groups.items():
            text = reasons.sentence(why, demand.kind, members)
            into = choice.hopeless if why in HOPELESS else choice.failed
            into.update((node.name, text) for node in members)
        return choice


def scores(chooser: Chooser, demand: Demand, offered: Sequence[str]) -> dict[str, int]:
    """Return 10 for the best of the nodes offered, less for each that is worse, 0 for those without room."""
    index = chooser.index(demand.kind)
    names = set(offered)
    ranked = [name for _, name in index.order if name in names]
    found = dict.fromkeys(offered, 0)
    found.update((name, max(1, 10 - at)) for at, name in enumerate(ranked))
    return found
