"""Which cards take a request. The GPU Scheduler of GaiaGPU (Gu et al., 2018), as a pure function.

The paper's three cases are one order of preference here:

* **share** (a part of one card): a card that is in use already rather than an idle one, so that whole
  cards stay whole; then the one with least left over (best fit), memory and compute counted alike.
* **whole** (one card; "fragment" in the paper): the idle card that is least tied to other idle cards,
  so that well-linked sets stay together for those who need several.
* **link** (several cards): the set whose weakest tie is strongest, then the one with the most and
  best ties in all (collectives run at the speed of their slowest link), then as above.

Equals are decided by UUID, so the answer depends on the values alone, never on their order.

Among the cards of one node, rules that price what is left over by what can still be sold in it
(fragmentation gradient descent, Weng et al., USENIX ATC 2023; the dual of a packing problem) filled
2 and 8 cards no better than best fit, with pods of a production trace, with and without departures.
They pay where a node has to be chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Final

from gaia_plugin.gpu.topology import Topology
from gaia_plugin.placement.model import CardState, Request, Slice
from gaia_plugin.placement.offers import usable
from gaia_plugin.placement.preference import Cost, binpack
from gaia_plugin.placement.refusals import refuse
from gaia_plugin.placement.rules import cards_wanted, find_fault, normalise
from gaia_plugin.shares import Share

_MOST_SETS: Final = 20_000
"""Sets of cards that are all looked at (any set of 16 cards is); beyond, sets are grown greedily."""

_Key = tuple[int, ...]


def place(
    request: Request,
    cards: Sequence[CardState],
    topology: Topology | None = None,
    *,
    cost: Cost = binpack,
) -> tuple[Slice, ...]:
    """Choose distinct cards for a request; return a slice on each, in UUID order.

    A request is refused only if no choice of cards could take it. `cost` says what speaks against a
    card; between sets of several cards their ties decide first.

    Raises:
        Refusal: ``invalid_amount`` (means nothing, or is more than these cards have at all),
            ``card_full`` (not free now), ``no_such_card`` (no card, or none of that model),
            ``unavailable`` (no card is healthy). Carries the best offer.
    """
    room = usable(request, cards)
    if not room or find_fault(request, room[0]) is not None:
        raise refuse(request, cards)
    count = cards_wanted(request)
    shares = {card.uuid: normalise(request, card) for card in room}
    able = [card for card in room if shares[card.uuid].fits(card.free)]
    if len(able) < count:
        raise refuse(request, cards)
    choice = _Choice(able, shares, topology or Topology(), cost)
    return tuple(Slice(card.uuid, shares[card.uuid]) for card in choice.best(count))


@dataclass(frozen=True)
class _Choice:
    """The cards that could take one slice each, and what speaks for a set of them."""

    able: Sequence[CardState]
    shares: dict[str, Share]
    topology: Topology
    cost: Cost

    @cached_property
    def _cards(self) -> list[CardState]:
        return sorted(self.able, key=lambda card: card.uuid)

    @cached_property
    def _weights(self) -> list[list[int]]:
        uuids = [card.uuid for card in self._cards]
        tie = self.topology.tie
        return [[tie(a, b).weight if a != b else 0 for b in uuids] for a in uuids]

    @cached_property
    def _between_idle(self) -> list[list[int]]:
        """The weights among idle cards only: what is worth keeping together."""
        idle = [card.idle for card in self._cards]
        return [
            [weight if idle[i] and idle[j] else 0 for j, weight in enumerate(row)]
            for i, row in enumerate(self._weights)
        ]

    @cached_property
    def _costs(self) -> list[_Key]:
        """What each card costs alone."""
        return [self.cost(card, self.shares[card.uuid]) for card in self._cards]

    def best(self, count: int) -> list[CardState]:
        """Return the best set of `count` cards, in UUID order."""
        places = range(len(self._cards))
        sets: Iterable[tuple[int, ...]] = (
            combinations(places, count) if comb(len(places), count) <= _MOST_SETS else self._grown(count)
        )
        return [self._cards[i] for i in min(sets, key=self._key)]

    def _grown(self, count: int) -> Iterator[tuple[int, ...]]:
        """From each card on, add the card that makes the best set, until there are `count`."""
        for first in range(len(self._cards)):
            chosen: tuple[int, ...] = (first,)
            while len(chosen) < count:
                others = (i for i in range(len(self._cards)) if i not in chosen)
                chosen = min((tuple(sorted((*chosen, i))) for i in others), key=self._key)
            yield chosen

    def _key(self, chosen: tuple[int, ...]) -> _Key:
        """Return the order of preference of a set, smaller first; unique by its last part."""
        pairs = list(combinations(chosen, 2))
        ties = [self._weights[i][j] for i, j in pairs]
        models = {self._cards[i].model for i in chosen}
        costs = [sum(column) for column in zip(*(self._costs[i] for i in chosen), strict=True)]
        return (len(models), -min(ties, default=0), -sum(ties), *costs, self._cut(chosen, pairs), *chosen)

    def _cut(self, chosen: tuple[int, ...], pairs: Sequence[tuple[int, int]]) -> int:
        """Return the weight of the ties between the set and the idle cards outside it."""
        kept = self._between_idle
        return sum(sum(kept[i]) for i in chosen) - 2 * sum(kept[i][j] for i, j in pairs)
