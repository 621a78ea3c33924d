"""Kubernetes quantities, as far as an extended resource may use them: whole numbers.

The API server keeps 1000 as ``1k`` and takes ``1e3``, ``1Ki`` and ``2000m`` for the whole numbers that
they are, so all of them are read. What is not whole, negative or beyond 64 bits is no amount.
Grammar: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from typing import Final

LARGEST: Final = (1 << 63) - 1
"""Beyond this Kubernetes itself cannot count."""

_LONGEST: Final = 64
_MOST_PLACES: Final = 60
"""Powers of ten beyond which a number of 64 characters is 0, not whole or too large for certain."""

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<power>[+-]?[0-9]+))?"
)
_TENS: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_TWOS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class NotWhole(ValueError):
    """Text that is no whole number from 0 to 2^63 - 1; the message completes "X is ..."."""


def whole_number(text: str) -> int:
    """Return the whole number that a quantity names.

    Raises:
        NotWhole: it is no quantity, negative, not whole or beyond 64 bits.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["part"]):
        raise NotWhole("not a number")
    part = match["part"] or ""
    digits = int(match["whole"] + part)
    if digits == 0:
        return 0
    if match["sign"] == "-":
        raise NotWhole("negative")
    places = _TENS.get(match["suffix"] or "", 0) + _power(match["power"])
    number = _shifted(digits << _TWOS.get(match["suffix"] or "", 0), places - len(part))
    if number > LARGEST:
        raise NotWhole("more than Kubernetes can count")
    return number


def _power(text: str | None) -> int:
    if text is None:
        return 0
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").lstrip("0")
    # A power of a billion would be computed for minutes; one of a thousand says the same.
    return sign * (1000 if len(digits) > 3 else int(digits or "0"))


def _shifted(number: int, places: int) -> int:
    """Return `number` (not 0) times ten to `places`."""
    if places >= 0:
        if places > _MOST_PLACES:
            raise NotWhole("more than Kubernetes can count")
        return number * int(10**places)
    whole, rest = divmod(number, int(10 ** min(-places, 4 * _MOST_PLACES)))
    if rest:
        raise NotWhole("not a whole number")
    return whole
