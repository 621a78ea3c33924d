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
from gaia_plugin.placement import CardState, Request, Slice, accepts, cards_wanted, place
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
    """Return how far a slot may grow over all its cards: what the pod says, at most the whole cards."""
    whole = _largest(wish.request, cards)
    count = cards_wanted(wish.request)
    most = Share(whole.units * count, whole.cores * count)
    return most if wish.maximum is None else wish.maximum.least(most)


def largest_card(cards: Sequence[CardCapacity]) -> int | None:
    """Return the units of the largest card there is; None where there is none."""
    return max((card.units for card in cards), default=0) or None


def _largest(request: Request, cards: Sequence[CardCapacity]) -> Share:
    whole = NOTHING
    for card in cards:
        if accepts(request.models, card.name):
            whole = whole.most(card.share)
    return whole
