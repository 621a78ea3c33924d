"""The nodes of a cluster, and which of them takes a pod."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gaia_plugin.errors import Refusal
from gaia_plugin.placement.choose import place
from gaia_plugin.placement.cluster.ask import Ask, Chosen, NodeState
from gaia_plugin.placement.cluster.kinds import Kind
from gaia_plugin.placement.cluster.mix import Mix, Seen
from gaia_plugin.placement.cluster.options import Options, Rule
from gaia_plugin.placement.cluster.refusal import refusal
from gaia_plugin.placement.cluster.reserves import Reserves
from gaia_plugin.placement.cluster.rooms import Rooms, rows_of
from gaia_plugin.placement.cluster.worth import Worth
from gaia_plugin.placement.model import CardState, Request, Slice
from gaia_plugin.placement.preference import binpack, spread
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD

_MOST_KINDS: Final = 512

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Prices:
    """What a renewal makes: the constants, the mix and what room is worth by it, for so many classes."""

    constants: Options
    usual: tuple[Seen, ...]
    worth: Worth
    classes: int


class Fleet:
    """Nodes by name. `choose` and `ranked` change nothing that another answer depends on.

    The order of preference between two nodes that both fit: not reserved for pickier requests, cards
    closer to each other (for several cards), fewer steps of cost, less left over, first by name. The last
    makes it strict: the same nodes, prices and ask give the same answer, whatever came before.

    Args:
        options: the rule and its constants.
        mix: what is known of the usual mix beforehand.
        kinds: of ask that are remembered, some 50 bytes a node each; those not asked for longest are
            forgotten.
    """

    def __init__(
        self, options: Options | None = None, mix: Mix | None = None, *, kinds: int = _MOST_KINDS
    ) -> None:
        self.options = options or Options()
        self.mix = mix or Mix()
        self._rooms = Rooms()
        self._kinds: OrderedDict[Ask, Kind] = OrderedDict()
        self._most_kinds = kinds
        self._appraised = -1
        self.renew()

    def __len__(self) -> int:
        return len(self._rooms.row)

    def __contains__(self, name: object) -> bool:
        return name in self._rooms.row

    def put(self, node: NodeState) -> None:
        """Take a node as it stands now: a new one, or one that changed."""
        self._rooms.put(node)

    def drop(self, name: str) -> None:
        """Forget a node; one that is not known is forgotten already."""
        self._rooms.drop(name)

    def learn(self, ask: Ask) -> None:
        """Count what a new pod asks for, once a pod, into the mix; prices follow when it has doubled."""
        if self.mix.see(ask):
            self.renew()

    def ended(self) -> None:
        """Count a pod that has left, once a pod, so that it is known how soon room comes back."""
        self.mix.end()

    def renew(self) -> None:
        """Make prices and reserves anew from the mix, for the cards there are."""
        self.adopt(self.prepare()())

    def prepare(self) -> Callable[[], Prices]:
        """Return what makes prices from the mix as it is now; any thread may call it."""
        constants = self.options.under(self.mix.churn)
        usual = tuple(self.mix) if self.options.rule is Rule.PRICED else ()
        classes = self._rooms.classes.copy()
        return lambda: Prices(constants, usual, Worth(classes, usual, constants), len(classes))

    def adopt(self, prices: Prices) -> None:
        """Go by these prices from now on."""
        self._constants, self._usual = prices.constants, prices.usual
        self._worth, self._classes = prices.worth, prices.classes
        self._built = -1
        self._kinds.clear()
        self._appraised = -1

    def choose(self, ask: Ask, offered: Iterable[str] | None = None) -> Chosen | None:
        """Return the best node for an ask and the slices there; None if it fits nowhere now.

        Args:
            ask: what the pod asks for.
            offered: names of the nodes that may be taken; None: any.
        """
        kind = self._refreshed(ask)
        rows = self._fitting(kind, offered)
        if len(ask.requests) > 1:
            return next(self._placed(ask, self._ordered(kind, rows)), None)
        return next(self._placed(ask, self._best(kind, rows)), None)

    def ranked(self, ask: Ask, offered: Iterable[str] | None = None) -> Iterator[Chosen]:
        """Go through all nodes that can take an ask, best first."""
        kind = self._refreshed(ask)
        return self._placed(ask, self._ordered(kind, self._fitting(kind, offered)))

    def order(self, ask: Ask, offered: Collection[str] | None = None) -> Iterator[str]:
        """Go through the names of the nodes that have room for each request of an ask alone, best first.

        For one request that is room for the ask. What goes on which card is for the caller to choose, by
        `cost`; the fleet must not change meanwhile.
        """
        kind = self._refreshed(ask)
        # The best of all is the best of those offered if it is one of them, as it mostly is.
        best = next(self._best(kind, self._fitting(kind, None)), None)
        if best is not None and offered is not None and self._name(best) not in offered:
            best = next(self._best(kind, self._fitting(kind, offered)), None)
        if best is None:
            return
        yield self._name(best)
        rows = self._fitting(kind, offered)
        yield from (self._name(row) for row in self._ordered(kind, rows) if row != best)

    def why_not(self, ask: Ask, offered: Iterable[str] | None = None) -> Refusal:
        """Say why no node takes an ask, where `choose` found none: what it wants and what there is."""
        live = self._rooms.live
        rows = np.flatnonzero(live if offered is None else live & rows_of(self._rooms, offered))
        return refusal(self._refreshed(ask), self._rooms, rows)

    def _refreshed(self, ask: Ask) -> Kind:
        self._price_all()
        if self._rooms.built != self._built:
            self._reserves = Reserves.of(self._usual, self._rooms, self._constants)
            self._built = self._rooms.built
        changed = np.flatnonzero(self._rooms.changed > self._appraised)
        if changed.size:
            self._rooms.appraise(self._worth, changed)
            self._appraised = self._rooms.clock
        kind = self._kinds.get(ask)
        if kind is None:
            kind = self._kinds[ask] = Kind.of(ask, self._rooms)
            if len(self._kinds) > self._most_kinds:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(ask)
        kind.refresh(self._rooms, self._worth)
        return kind

    def _price_all(self) -> None:
        """Make prices from the mix of the last renewal for a kind of card that has come since."""
        classes = self._rooms.classes
        if len(classes) != self._classes:
            worth = Worth(classes, self._usual, self._constants)
            self.adopt(Prices(self._constants, self._usual, worth, len(classes)))

    def _fitting(self, kind: Kind, offered: Iterable[str] | None) -> Rows:
        if offered is None:
            return np.flatnonzero(kind.fits)
        return np.flatnonzero(kind.fits & rows_of(self._rooms, offered))

    def _keys(self, kind: Kind) -> list[NDArray[np.int64]]:
        """Return by row what decides after reserves and ties, first things first; less is better."""
        match self.options.rule:
            case Rule.PRICED:
                return [kind.step, kind.over, self._rooms.rank]
            case Rule.BINPACK:
                return [kind.over, self._rooms.rank]
            case Rule.SPREAD:
                return [-kind.over, self._rooms.rank]

    def _best(self, kind: Kind, rows: Rows) -> Iterator[int]:
        """Return the best row, if there is one."""
        if not rows.size:
            return
        alone = self._reserves.left_alone(kind, self._rooms, rows)
        if alone is not None:
            rows = rows[alone == alone.min()]
        if kind.first is not None and kind.first.count > 1:
            level = kind.level[rows]
            rows = rows[level == level.max()]
        for key in self._keys(kind):
            of_rows = key[rows]
            rows = rows[of_rows == of_rows.min()]
        yield int(rows[0])

    def _ordered(self, kind: Kind, rows: Rows) -> Iterator[int]:
        """Return all rows, best first."""
        alone = self._reserves.left_alone(kind, self._rooms, rows)
        first = np.zeros(rows.size, np.int64) if alone is None else alone
        keys = (-kind.level, *self._keys(kind))
        yield from rows[np.lexsort((*(key[rows] for key in reversed(keys)), first))].tolist()

    def _placed(self, ask: Ask, rows: Iterable[int]) -> Iterator[Chosen]:
        """Choose cards on each node; a node where several requests do not fit together is passed over."""
        for row in rows:
            node = self._rooms.nodes[row]
            slices = self._on(node, ask.requests) if node is not None else None
            if node is not None and slices is not None:
                yield Chosen(node.name, slices)

    def _on(self, node: NodeState, requests: tuple[Request, ...]) -> tuple[tuple[Slice, ...], ...] | None:
        """Choose cards for each request; the largest first, or a smaller one would take its place."""
        cards = list(node.cards)
        found: dict[int, tuple[Slice, ...]] = {}
        for i in sorted(range(len(requests)), key=lambda i: self._rooms.classes.shape(requests[i]).order):
            try:
                found[i] = place(requests[i], cards, node.topology, cost=self.cost)
            except Refusal:
                return None
            taken = {one.card: one.share for one in found[i]}
            cards = [
                replace(card, free=card.free - taken[card.uuid]) if card.uuid in taken else card
                for card in cards
            ]
        return tuple(found[i] for i in range(len(requests)))

    def _name(self, row: int) -> str:
        node = self._rooms.nodes[row]
        assert node is not None, "no row fits where no node is"
        return node.name

    def cost(self, card: CardState, share: Share) -> tuple[int, ...]:
        """Return what a card costs by the rule, for `placement.place`; less is better."""
        match self.options.rule:
            case Rule.PRICED:
                return self._loss(card, share)
            case Rule.BINPACK:
                return binpack(card, share)
            case Rule.SPREAD:
                return spread(card, share)

    def _loss(self, card: CardState, share: Share) -> tuple[int, ...]:
        """Return what a card costs by its prices, then as in best fit."""
        number = self._rooms.classes.number(card)
        self._price_all()
        lost = self._worth.loss(number, (card.free.units, card.free.cores), (share.units, share.cores))
        left = card.free - share
        over = left.units * CORES_PER_CARD // card.capacity.units + left.cores
        return (lost, over, card.capacity.units)
