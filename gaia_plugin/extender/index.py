"""All nodes in the order in which a kind of pods likes them, kept up node by node.

What is looked at here is only what most nodes are sorted out by: whether enough cards have room. That the
containers of a pod fit beside each other is looked at by `fit` on the node that is chosen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from gaia_plugin.errors import Refusal
from gaia_plugin.extender.demand import Kind
from gaia_plugin.extender.node import CardClasses, Node, Row
from gaia_plugin.placement import Request, accepts, cards_wanted, normalise
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD


class Why(IntEnum):
    """Why a node is out of the question for a kind of pods; the first that holds."""

    NO_CARD = 1
    """It has no healthy card."""
    MODEL = 2
    """Its cards are of models that the pod does not take."""
    TOO_FEW = 3
    """It has fewer cards than are asked for."""
    TOO_SMALL = 4
    """Its cards are smaller than what is asked for."""
    FULL = 5
    """Its cards have not that much free now."""


HOPELESS: Final = frozenset({Why.MODEL, Why.TOO_FEW, Why.TOO_SMALL})
"""Reasons that no pod's end takes away."""

_NO: Final = 1 << 62
_MOST_CARDS: Final = 100_000

Cost = tuple[int, ...]
"""What a node costs a kind of pods; smaller is better."""


class Ask(NamedTuple):
    """A request in numbers: what it takes of a card of each class, None where it takes none of that."""

    cards: int
    whole: bool
    shares: list[Share | None]
    reasons: list[Why | None]
    """Why a class is out of the question even when it is idle."""
    of_cards: dict[int, int]
    """What cards cost that were looked at, by `Row.key`: most cards of a cluster are like others."""


class Index:
    """The order of nodes for a kind."""

    def __init__(self, kind: Kind, classes: CardClasses, nodes: Mapping[str, Node]) -> None:
        self._kind = kind
        self._classes = classes
        self._nodes = nodes
        self._asks = [Ask(cards_wanted(each), _whole(each), [], [], {}) for each in kind]
        self._costs: dict[str, Cost] = {}
        self._dirty: set[str] = set(nodes)
        self.order: list[tuple[Cost, str]] = []
        """The nodes that have room, best first."""
        self.why: dict[str, Why] = {}
        """The others that have a `GPUNode`, and what is against them."""

    def touch(self, name: str) -> None:
        """Look at a node again before the next question."""
        self._dirty.add(name)

    def refresh(self) -> None:
        """Look at every node again that has changed."""
        if not self._dirty:
            return
        for at in range(len(self._classes.examples)):
            for request, ask in zip(self._kind, self._asks, strict=True):
                if at >= len(ask.shares):
                    share, why = _of_class(request, self._classes, at)
                    ask.shares.append(share)
                    ask.reasons.append(why)
        for ask in self._asks:
            if len(ask.of_cards) > _MOST_CARDS:
                ask.of_cards.clear()
        many = len(self._dirty) > 64
        for name in self._dirty:
            self._look(name, sort=not many)
        if many:
            self.order = sorted((cost, name) for name, cost in self._costs.items())
        self._dirty.clear()

    def strike(self, name: str) -> None:
        """Take a node out until it changes: it has room for each container, and not for all together."""
        self._drop(name, sort=True)
        self.why[name] = Why.FULL

    def _look(self, name: str, *, sort: bool) -> None:
        self._drop(name, sort=sort)
        node = self._nodes.get(name)
        if node is None or node.gpunode is None:
            return
        cost: Cost | None = None
        for at, ask in enumerate(self._asks):
            found = cost_of(ask, node)
            if isinstance(found, Why):
                self.why[name] = found
                return
            if at == 0:
                cost = found
        if len(self._asks) > 1 and not self._together(node):
            self.why[name] = Why.FULL
        elif cost is not None:
            self._costs[name] = cost
            if sort:
                insort(self.order, (cost, name))

    def _together(self, node: Node) -> bool:
        """Tell whether the containers may fit beside each other: whole cards by number, all by their sums.

        `fit` knows for certain, and takes a hundred times as long.
        """
        least = [
            min((share for share in ask.shares if share is not None), key=_size, default=None)
            for ask in self._asks
        ]
        whole = sum(ask.cards for ask in self._asks if ask.whole)
        units = sum(ask.cards * share.units for ask, share in zip(self._asks, least, strict=True) if share)
        cores = sum(ask.cards * share.cores for ask, share in zip(self._asks, least, strict=True) if share)
        return (
            whole <= node.idle
            and units <= sum(max(0, row.units) for row in node.rows)
            and cores <= sum(max(0, row.cores) for row in node.rows)
        )

    def _drop(self, name: str, *, sort: bool) -> None:
        self.why.pop(name, None)
        cost = self._costs.pop(name, None)
        if cost is not None and sort:
            del self.order[bisect_left(self.order, (cost, name))]


def _size(share: Share) -> tuple[int, int]:
    return share.units, share.cores


def _whole(request: Request) -> bool:
    return request.cores is not None and request.cores >= CORES_PER_CARD * cards_wanted(request)


def _of_class(request: Request, classes: CardClasses, at: int) -> tuple[Share | None, Why | None]:
    """Return what a request takes of a card of this class, or what is against the class."""
    card = classes.examples[at]
    if not accepts(request.models, card.model):
        return None, Why.MODEL
    try:
        share = normalise(request, card)
    except Refusal:
        return None, Why.TOO_SMALL
    return (share, None) if share.fits(card.capacity) else (None, Why.TOO_SMALL)


def cost_of(ask: Ask, node: Node) -> Cost | Why:
    """Return what a node costs a request, or what is against it.

    Best fit, with what matters more before it: a part of a card goes to one that is in use, so that whole
    cards stay whole; several cards go where they are linked closest; of equal nodes the one with fewest idle
    cards is used up first.
    """
    return _one_card(ask, node) if ask.cards == 1 else _several(ask, node)


def _one_card(ask: Ask, node: Node) -> Cost | Why:
    costs, known = ask.of_cards, node.keys
    try:
        best = min([costs[key] for key in known], default=_NO)
    except KeyError:
        for row in node.rows:
            if row.key not in costs:
                costs[row.key] = _of_card(ask, row)
        best = min([costs[key] for key in known], default=_NO)
    if best == _NO:
        return why_not(ask, node)
    broken, over, capacity = best >> 40, best >> 20 & 0xFFFFF, best & 0xFFFFF
    return (broken, node.idle if broken or ask.whole else 0, over, node.idle, capacity)


def _of_card(ask: Ask, row: Row) -> int:
    """Return what one card costs a request of one card, as one number; `_NO`: it has no room."""
    share = ask.shares[row.card_class]
    if share is None or share.units > row.units or share.cores > row.cores:
        return _NO
    over = (row.units - share.units) * CORES_PER_CARD // row.capacity + row.cores - share.cores
    broken = int(row.idle and not ask.whole)
    return broken << 40 | over << 20 | row.capacity


def _several(ask: Ask, node: Node) -> Cost | Why:
    able = {
        row.uuid
        for row in node.rows
        if (share := ask.shares[row.card_class]) is not None
        and share.units <= row.units
        and share.cores <= row.cores
    }
    if len(able) < ask.cards:
        return why_not(ask, node)
    for level, branches in node.groups:
        if any(len(able.intersection(branch)) >= ask.cards for branch in branches):
            closeness = int(level)
            break
    else:
        closeness = 0
    return (-closeness, node.idle, len(able), 0, 0)


def why_not(ask: Ask, node: Node) -> Why:
    """Return what is against a node that cannot take a request now."""
    if not node.rows:
        return Why.NO_CARD
    reasons = [ask.reasons[row.card_class] for row in node.rows]
    if all(reason is Why.MODEL for reason in reasons):
        return Why.MODEL
    fitting = [reason for reason in reasons if reason is not Why.MODEL]
    if len(fitting) < ask.cards:
        return Why.TOO_FEW
    return Why.FULL if sum(reason is None for reason in fitting) >= ask.cards else Why.TOO_SMALL
