"""Refusals as RFC 9457 problem details."""

from __future__ import annotations

from typing import Final

from gaia_plugin.api import models
from gaia_plugin.errors import HTTP_STATUS, Code, Refusal

MEDIA_TYPE: Final = "application/problem+json"

_TITLES: Final = {
    Code.CARD_FULL: "The card has not that much left",
    Code.OVER_MAXIMUM: "More than this slot may have",
    Code.INVALID_AMOUNT: "Not an amount",
    Code.UNAVAILABLE: "Not possible just now",
    Code.NO_SUCH_SLOT: "No such slot",
    Code.SLOT_EXISTS: "The slot exists already",
    Code.STALE: "The slot has changed since",
    Code.TOO_MANY_REQUESTS: "Too many requests",
    Code.NO_SUCH_CARD: "No such card",
    Code.NO_SUCH_PROFILE: "No such profile",
    Code.BAD_REQUEST: "Not a request of this API",
}


def problem(
    refusal: Refusal, *, status: int | None = None, current: models.Slot | None = None
) -> models.Problem:
    """Return the refusal as problem details, with the slot as it stands where that helps."""
    best = None
    if refusal.best_memory is not None and refusal.best_cores is not None:
        best = models.Amounts(memory=refusal.best_memory, cores=refusal.best_cores)
    return models.Problem(
        type=f"urn:gaia:problem:{refusal.code}",
        title=_TITLES[refusal.code],
        status=HTTP_STATUS[refusal.code] if status is None else status,
        detail=refusal.sentence,
        code=refusal.code.value,
        best_offer=best,
        current=current,
    )
