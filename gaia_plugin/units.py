"""Quantities: what a unit is, how amounts are read and how they are written.

Memory is counted in units of 256 MiB and computed in integers only. Compute is counted in
percent of one card's time ("cores"). Text in either direction passes through this file.
"""

from __future__ import annotations

import re
from typing import Final

from gaia_plugin.errors import Code, Refusal

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40

MEMORY_UNIT: Final = 256 * MIB
"""Bytes in one unit of memory."""

CORES_PER_CARD: Final = 100
"""Cores of one whole card: 1 core is 1 % of its time."""

LARGEST_MEMORY: Final = 64 * TIB
"""Above this an amount is a typing mistake, not a wish."""

_SUFFIXES: Final = {
    "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KI": KIB, "MI": MIB, "GI": GIB, "TI": TIB,
    "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": TIB,
}  # fmt: skip
_AMOUNT: Final = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))? ?([A-Za-z]{1,3})")


def _invalid(what: object, hint: str) -> Refusal:
    shown = repr(what) if len(repr(what)) <= 40 else repr(what)[:37] + "..."
    return Refusal(Code.INVALID_AMOUNT, f"{shown} is not an amount Gaia can use: {hint}")


def parse_memory(value: object) -> int:
    """Return the bytes that `value` names.

    Text needs a unit (``"8GiB"``, ``"8Gi"``, ``"1.5 GiB"``, ``"512MB"``); an integer is bytes.

    Raises:
        Refusal: code ``invalid_amount``, for anything else: zero, negative, not a whole number
            of bytes, no unit, an unknown unit, stray characters, other types.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _invalid(value, "write memory as text with a unit, such as 8GiB.")
    if isinstance(value, str):
        match = _AMOUNT.fullmatch(value)
        if match is None:
            raise _invalid(value, "write memory as a number and a unit, such as 8GiB.")
        whole, fraction, suffix = match.groups()
        scale = _SUFFIXES.get(suffix.upper())
        if scale is None:
            raise _invalid(value, "the unit is unknown; use MiB, GiB or TiB, such as 8GiB.")
        amount = int(whole) * scale
        if fraction:
            extra, rest = divmod(int(fraction) * scale, 10 ** len(fraction))
            amount += extra + (1 if rest else 0)
    else:
        amount = value
    if amount <= 0:
        raise _invalid(value, "it must be more than zero; the smallest slice is 256MiB.")
    if amount < MIB:
        raise _invalid(value, "that is less than 1 MiB; did you leave out the unit, as in 8GiB?")
    if amount > LARGEST_MEMORY:
        raise _invalid(value, "no card is that large; the largest amount accepted is 64TiB.")
    return amount


def parse_cores(value: object) -> int:
    """Return the cores (percent of one card) that `value` names: an integer, or its digits.

    Raises:
        Refusal: code ``invalid_amount``, for anything that is not a whole number from 1 on.
    """
    hint = "write cores as a whole number of percent, from 1 to 100 for a part of a card."
    if isinstance(value, str):
        if re.fullmatch(r"[0-9]{1,6}%?", value) is None:
            raise _invalid(value, hint)
        value = int(value.rstrip("%"))
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000:
        raise _invalid(value, hint)
    return value


def units_up(amount: int) -> int:
    """Return the units of memory that hold `amount` bytes, rounded up."""
    return -(-amount // MEMORY_UNIT)


def units_down(amount: int) -> int:
    """Return the whole units of memory within `amount` bytes."""
    return amount // MEMORY_UNIT


def format_memory(amount: int) -> str:
    """Write `amount` bytes for people: ``8 GiB``, ``1.5 GiB``, ``768 MiB``, ``0 MiB``.

    What does not come out even is rounded to the nearest tenth of a GiB or whole MiB.
    """
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    if size >= GIB:
        quarters, rest = divmod(size * 4, GIB)
        if rest == 0:
            return f"{sign}{_decimal(quarters * 25, 100)} GiB"
        return f"{sign}{_decimal((size * 10 + GIB // 2) // GIB, 10)} GiB"
    return f"{sign}{(size + MIB // 2) // MIB} MiB"


def _decimal(scaled: int, scale: int) -> str:
    whole, rest = divmod(scaled, scale)
    digits = f"{rest:0{len(str(scale)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def format_cores(cores: int) -> str:
    """Write cores for people: ``25 %``."""
    return f"{cores} %"
