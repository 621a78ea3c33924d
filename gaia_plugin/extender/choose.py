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
from gaia_plugin.extender.fleet import KeptFleet
from gaia_plugin.extender.node import Node
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.extender.why import HOPELESS, Reasons, Why
from gaia_plugin.placement import CardState
from gaia_plugin.placement.cluster import Options

_MOST_KINDS: Final = 64
"""Kinds of pods for which it is remembered where their containers do not fit beside each other."""

_Struck = dict[str, tuple[CardState, ...]]
"""By node, the cards on which a kind was found not to fit."""


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
    """Chooses nodes on a snapshot.

    Args:
        snapshot: of the cluster.
        options: the rule of placement.
    """

    def __init__(self, snapshot: Snapshot, options: Options | None = None) -> None:
        self._snapshot = snapshot
        self.fleet = KeptFleet(snapshot, options)
        self._struck: OrderedDict[Kind, _Struck] = OrderedDict()

    def choose(self, demand: Demand, offered: Sequence[str]) -> Choice:
        """Choose among the nodes that kube-scheduler offers; equal input, equal answer."""
        promised = self._promised(demand, offered)
        if promised is not None:
            return promised
        struck = self._struck_for(demand.kind)
        for name in self.fleet.order(demand.kind, offered):
            cards = self._snapshot.cards_for(self._snapshot.nodes[name], demand.uid)
            if struck.get(name) is cards:
                continue
            where = self.place(demand, self._snapshot.nodes[name], cards)
            if where is not None:
                return Choice(name, where)
            struck[name] = cards
        return self._refused(demand, offered)

    def place(self, demand: Demand, node: Node, cards: Sequence[CardState]) -> Placed | None:
        """Return where a pod goes on a node with these cards, or None."""
        try:
            return fit(demand, cards, node.topology, cost=self.fleet.cost)
        except Refusal:
            return None

    def _struck_for(self, kind: Kind) -> _Struck:
        """Return the nodes that have room for each container of a kind, and not for all together."""
        found = self._struck.setdefault(kind, {})
        self._struck.move_to_end(kind)
        if len(self._struck) > _MOST_KINDS:
            self._struck.popitem(last=False)
        return found

    def _promised(self, demand: Demand, offered: Iterable[str]) -> Choice | None:
        """Return the node that has a reservation for this pod already, from a bind that failed later on."""
        mine = self._snapshot.reserved_on.get(demand.uid, frozenset())
        for name in sorted(mine.intersection(offered)) if mine else ():
            node = self._snapshot.nodes.get(name)
            if node is not None and self._snapshot.usable(node):
                where = self.place(demand, node, self._snapshot.cards_for(node, demand.uid))
                if where is not None:
                    return Choice(name, where)
        return None

    def _refused(self, demand: Demand, offered: Sequence[str]) -> Choice:
        """Say why, in as many sentences as there are reasons."""
        nodes, now = self._snapshot.nodes, self._snapshot.clock()
        groups: defaultdict[Why, list[Node]] = defaultdict(list)
        choice, against = Choice(), Reasons(demand.kind, self._snapshot.classes.examples)
        for name in offered:
            node = nodes.get(name)
            if node is None or node.gpunode is None:
                choice.hopeless[name] = reasons.NO_AGENT
            elif self._snapshot.silent(node, now):
                choice.hopeless[name] = reasons.SILENT
            elif not node.ready or not node.machine:
                choice.hopeless[name] = reasons.NOT_READY
            else:
                groups[against.of(node.built)].append(node)
        for why, members in groups.items():
            text = reasons.sentence(why, demand.kind, members)
            into = choice.hopeless if why in HOPELESS else choice.failed
            into.update((node.name, text) for node in members)
        return choice


def scores(chooser: Chooser, demand: Demand, offered: Sequence[str]) -> dict[str, int]:
    """Return 10 for the best of the nodes offered, less for each that is worse, 0 for those without room."""
    found = dict.fromkeys(offered, 0)
    ranked = chooser.fleet.order(demand.kind, offered)
    found.update((name, max(1, 10 - at)) for at, name in enumerate(ranked))
    return found
