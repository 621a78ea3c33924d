"""What speaks against a card, beside its ties: the options between which an operator may choose."""

from __future__ import annotations

from collections.abc import Callable

from gaia_plugin.placement.model import CardState
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD

Cost = Callable[[CardState, Share], tuple[int, ...]]
"""What a card costs that would give a share: whole numbers, first things first, less is better."""


def binpack(card: CardState, share: Share) -> tuple[int, ...]:
    """Prefer a card in use to an idle one, then the one with least left over, then the smaller one."""
    broken = int(card.idle and share.cores < CORES_PER_CARD)
    return (broken, _over(card, share), card.capacity.units)


def spread(card: CardState, share: Share) -> tuple[int, ...]:
    """Prefer the card with most left over, so that tenants share as few cards as can be."""
    return (-_over(card, share), card.capacity.units)


def _over(card: CardState, share: Share) -> int:
    """Return the percent of memory and the percent of cores left over, added up."""
    left = card.free - share
    return left.units * CORES_PER_CARD // card.capacity.units + left.cores
