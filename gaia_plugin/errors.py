"""What users and operators are told.

A `Refusal` carries a stable code for programs and a sentence for the reader who can act. It is
the one exception that may be shown to people as it stands; everything else is a bug or a fault.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Stable codes of refusals; part of the API."""

    CARD_FULL = "card_full"
    OVER_MAXIMUM = "over_maximum"
    INVALID_AMOUNT = "invalid_amount"
    UNAVAILABLE = "unavailable"
    NO_SUCH_SLOT = "no_such_slot"
    SLOT_EXISTS = "slot_exists"
    STALE = "stale"
    TOO_MANY_REQUESTS = "too_many_requests"
    NO_SUCH_CARD = "no_such_card"
    NO_SUCH_PROFILE = "no_such_profile"
    BAD_REQUEST = "bad_request"


HTTP_STATUS: dict[Code, int] = {
    Code.CARD_FULL: 409,
    Code.OVER_MAXIMUM: 409,
    Code.INVALID_AMOUNT: 422,
    Code.UNAVAILABLE: 503,
    Code.NO_SUCH_SLOT: 404,
    Code.SLOT_EXISTS: 409,
    Code.STALE: 412,
    Code.TOO_MANY_REQUESTS: 429,
    Code.NO_SUCH_CARD: 404,
    Code.NO_SUCH_PROFILE: 422,
    Code.BAD_REQUEST: 400,
}


class Refusal(Exception):
    """A request that is not granted, in words its author can act on.

    Args:
        code: stable, for programs.
        sentence: one or two plain sentences, with the number that would have worked.
        best_memory: bytes in total that would be granted instead, if that is known.
        best_cores: cores in total that would be granted instead, if that is known.
    """

    def __init__(
        self, code: Code, sentence: str, *, best_memory: int | None = None, best_cores: int | None = None
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.best_memory = best_memory
        self.best_cores = best_cores


class Unusable(Exception):
    """The machine lacks something Gaia needs; the sentence says what and what to do."""


class Fatal(Unusable):
    """Nothing that runs may be touched any more: the process ends with the sentence and is started again."""
