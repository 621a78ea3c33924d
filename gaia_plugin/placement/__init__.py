"""The GPU Scheduler: pure functions from a request and the cards as they stand to slices.

`place` decides; `normalise` says what a request means on a card, `best_offer` what would be granted
instead of it, `largest_free` what the largest slice is that could be given now.
"""

from gaia_plugin.placement.choose import place
from gaia_plugin.placement.model import CardState, Request, Slice, total
from gaia_plugin.placement.offers import Offer, best_offer, largest_free
from gaia_plugin.placement.rules import accepts, cards_wanted, normalise, part_of_card

__all__ = [
    "CardState",
    "Offer",
    "Request",
    "Slice",
    "accepts",
    "best_offer",
    "cards_wanted",
    "largest_free",
    "normalise",
    "part_of_card",
    "place",
    "total",
]
