"""Why nodes do not take a kind of pods; those that are built alike are looked at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from gaia_plugin.errors import Refusal
from gaia_plugin.extender.demand import Kind
from gaia_plugin.placement import CardState, Request, accepts, cards_wanted, normalise


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


class Reasons:
    """What is against nodes that do not take a kind of pods now.

    Args:
        kind: what the pods ask for.
        examples: an idle card of each class, by number.
    """

    def __init__(self, kind: Kind, examples: Sequence[CardState]) -> None:
        self._kind = kind
        self._examples = examples
        self._known: dict[tuple[int, ...], Why] = {}

    def of(self, built: tuple[int, ...]) -> Why:
        """Return what is against a node, by the classes of its healthy cards."""
        found = self._known.get(built)
        if found is None:
            each = [self._against(request, built) for request in self._kind]
            found = self._known[built] = next((why for why in each if why is not Why.FULL), Why.FULL)
        return found

    def _against(self, request: Request, built: tuple[int, ...]) -> Why:
        if not built:
            return Why.NO_CARD
        wanted = cards_wanted(request)
        of_class = {number: _of_class(request, self._examples[number]) for number in set(built)}
        fitting = [of_class[number] for number in built if of_class[number] is not Why.MODEL]
        if not fitting:
            return Why.MODEL
        if len(fitting) < wanted:
            return Why.TOO_FEW
        return Why.FULL if fitting.count(None) >= wanted else Why.TOO_SMALL


def _of_class(request: Request, card: CardState) -> Why | None:
    """Return what is against a card like this even when it is idle."""
    if not accepts(request.models, card.model):
        return Why.MODEL
    try:
        share = normalise(request, card)
    except Refusal:
        return Why.TOO_SMALL
    return None if share.fits(card.capacity) else Why.TOO_SMALL
