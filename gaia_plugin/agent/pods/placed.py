"""On which cards a container is put: as its annotation says, else as this node's placement says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gaia_plugin.agent.pods.identity import Owner
from gaia_plugin.gpu.topology import Topology
from gaia_plugin.kube import placement
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.wishes import Wish
from gaia_plugin.ledger import CardCapacity
from gaia_plugin.placement import CardState, Request, Slice, accepts, cards_wanted, part_of_card, place
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.slots.names import slot_name


@dataclass(frozen=True, slots=True)
class Order:
    """A slot to be made for a container of `pod`."""

    owner: Owner
    pod: Pod
    wish: Wish

    @property
    def slot(self) -> str:
        """Return the slot's name."""
        return slot_name(self.owner.uid, self.owner.container)


@dataclass
class Choice:
    """How the cards for an order are chosen, as `Ledger.reserve` calls it.

    `ignored` says afterwards why the annotation counted for nothing, `moved` whether it was one whose
    cards cannot take the container now.
    """

    order: Order
    node: str
    domain: str
    topology: Topology
    ignored: str = ""
    moved: bool = False

    def __call__(self, cards: list[CardState]) -> Sequence[Slice]:
        """Return the slices for the order on these cards.

        Raises:
            Refusal: as `place`.
        """
        order = self.order
        believed = placement.placed(
            order.pod, order.owner.container, order.wish.request, cards, node=self.node, domain=self.domain
        )
        if isinstance(believed, placement.Ignored):
            self.ignored = believed.reason or ""
        elif _fit(believed, cards):
            return believed
        else:
            self.moved = True
        return place(order.wish.request, cards, self.topology)


def _fit(slices: Sequence[Slice], cards: Sequence[CardState]) -> bool:
    states = {card.uuid: card for card in cards}
    return all(states[part.card].healthy and part.share.fits(states[part.card].free) for part in slices)


def maximum(wish: Wish, cards: Sequence[CardCapacity]) -> Share:
    """Return how far a slot may grow over all its cards: what the pod says, at most the whole cards.

    What the pod does not say is what it asks for: quotas count that, and nobody grows beyond a quota
    unseen. Compute that was not asked for either comes with the memory, as it does in the request.
    """
    request, count = wish.request, cards_wanted(wish.request)
    whole = _largest(request, cards)
    units = wish.max_units if wish.max_units is not None else request.memory_units
    cores = wish.max_cores if wish.max_cores is not None else request.cores
    units = whole.units * count if units is None else min(units, whole.units * count)
    if cores is None:
        each = -(-units // count)
        cores = count * max((part_of_card(each, size) for size in _sizes(request, cards)), default=0)
    return Share(units, min(cores, whole.cores * count))


def _sizes(request: Request, cards: Sequence[CardCapacity]) -> list[int]:
    return [card.units for card in cards if card.units and accepts(request.models, card.name)]


def largest_card(cards: Sequence[CardCapacity]) -> int | None:
    """Return the units of the largest card there is; None where there is none."""
    return max((card.units for card in cards), default=0) or None


def _largest(request: Request, cards: Sequence[CardCapacity]) -> Share:
    whole = NOTHING
    for card in cards:
        if accepts(request.models, card.name):
            whole = whole.most(card.share)
    return whole
