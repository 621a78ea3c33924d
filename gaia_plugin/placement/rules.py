"""What a request means on a card, and which requests mean nothing.

Memory alone takes the same part of the card's compute, rounded, at least 1 %. Whole cards may be
asked for by cores alone, in hundreds, and take the whole cards' memory. `count` splits a request
evenly. What is neither is refused with the nearest amounts that are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.placement.model import CardState, Request
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD, MEMORY_UNIT, format_cores, format_memory

SMALLEST = format_memory(MEMORY_UNIT)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request means nothing, and the nearest one that does (None: there is no nearest)."""

    sentence: str
    instead: Request | None = None


def memory_text(units: int) -> str:
    """Write units of memory for people, as `format_memory` does."""
    return format_memory(units * MEMORY_UNIT)


def cards_wanted(request: Request) -> int:
    """Return how many distinct cards a request without fault takes.

    Cores above 100 without a count are whole cards: one card for each hundred.
    """
    if request.count == 1 and request.cores is not None and request.cores > CORES_PER_CARD:
        return request.cores // CORES_PER_CARD
    return request.count


def asks_whole_cards(request: Request) -> bool:
    """Tell whether the memory asked for is whatever the whole cards have."""
    return request.memory_units is None


def part_of_card(units: int, capacity_units: int) -> int:
    """Return the cores that `units` of a card's memory come with: the same part, at least 1."""
    return max(1, (2 * units * CORES_PER_CARD + capacity_units) // (2 * capacity_units))


def normalise(request: Request, card: CardState) -> Share:
    """Return the share that each card of the request takes, if it is one like `card`.

    Only the card's capacity is looked at, not what is free; the share may be larger than the card.

    Raises:
        Refusal: code ``invalid_amount``, for a request that means nothing; says the nearest that does.
    """
    fault = find_fault(request, card)
    if fault is not None:
        raise Refusal(Code.INVALID_AMOUNT, fault.sentence)
    count = cards_wanted(request)
    if request.memory_units is None:
        return Share(card.capacity.units, CORES_PER_CARD)
    units = request.memory_units // count
    if request.cores is None:
        return Share(units, part_of_card(units, card.capacity.units))
    return Share(units, request.cores // count)


def corrected(request: Request, card: CardState) -> Request | None:
    """Return the request, or the nearest one that means something; None if there is no nearest."""
    now: Request | None = request
    while now is not None and (fault := find_fault(now, card)) is not None:
        now = fault.instead
    return now


def find_fault(request: Request, card: CardState) -> Fault | None:
    """Return the first reason why a request means nothing; `card` serves for the example in it."""
    return (
        _count_fault(request)
        or _amount_fault(request)
        or _whole_card_fault(request)
        or _memory_split_fault(request)
        or _cores_split_fault(request)
        or _cores_alone_fault(request, card)
    )


def accepts(models: frozenset[str], model: str) -> bool:
    """Tell whether a card's model is among those asked for; an empty set takes any.

    A name matches if its words stand in the model's name in this order, whatever the case and
    the signs between them: ``a100`` and ``A100-SXM4`` match "NVIDIA A100-SXM4-40GB", ``A10`` does not.
    """
    return not models or any(_words(name) in _words(model) for name in models if _words(name) != "  ")


def _words(name: str) -> str:
    return f" {' '.join(re.findall(r'[a-z0-9]+', name.casefold()))} "


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count_fault(request: Request) -> Fault | None:
    if not _whole(request.count) or request.count < 1:
        return Fault("The number of cards must be a whole number from 1 on.")
    return None


def _amount_fault(request: Request) -> Fault | None:
    units, cores = request.memory_units, request.cores
    if units is None and cores is None:
        return Fault("Say how much memory the slice shall have, such as 8GiB; compute may be left out.")
    if units is not None and (not _whole(units) or units < 1):
        return Fault(f"Memory must be more than zero; the smallest slice is {SMALLEST}.")
    if cores is not None and (not _whole(cores) or cores < 1):
        return Fault("Compute must be a whole number of percent, from 1 on.")
    return None


def _whole_card_fault(request: Request) -> Fault | None:
    """Refuse cores that are neither a part of one card nor whole cards."""
    cores, count = request.cores, request.count
    if cores is None:
        return None
    if count == 1 and cores > CORES_PER_CARD and cores % CORES_PER_CARD:
        below = cores - cores % CORES_PER_CARD
        return Fault(
            f"{format_cores(cores)} compute is neither a part of one card nor whole cards: "
            f"ask for {format_cores(below)} or {format_cores(below + CORES_PER_CARD)}.",
            replace(request, cores=below),
        )
    if count > 1 and cores > count * CORES_PER_CARD:
        most = count * CORES_PER_CARD
        return Fault(
            f"{format_cores(cores)} compute is more than {count} cards have: ask for at most "
            f"{format_cores(most)}, or for more cards.",
            replace(request, cores=most),
        )
    return None


def _memory_split_fault(request: Request) -> Fault | None:
    count, units = cards_wanted(request), request.memory_units
    if units is None or units % count == 0:
        return None
    below = units - units % count
    amounts = [memory_text(amount) for amount in (below, below + count) if amount]
    return Fault(
        f"{memory_text(units)} cannot be split evenly over {count} cards in steps of {SMALLEST}: "
        f"ask for {' or '.join(amounts)}.",
        replace(request, memory_units=below or count),
    )


def _cores_split_fault(request: Request) -> Fault | None:
    count, cores = cards_wanted(request), request.cores
    if cores is None or cores % count == 0:
        return None
    below = cores - cores % count
    amounts = [format_cores(amount) for amount in (below, below + count) if amount]
    return Fault(
        f"{format_cores(cores)} compute cannot be split evenly over {count} cards: "
        f"ask for {' or '.join(amounts)}.",
        replace(request, cores=below or count),
    )


def _cores_alone_fault(request: Request, card: CardState) -> Fault | None:
    """Refuse a part of a card without memory: nobody can guess how much is meant."""
    count, cores = cards_wanted(request), request.cores
    if request.memory_units is not None or cores is None or cores == count * CORES_PER_CARD:
        return None
    part = max(1, card.capacity.units * (cores // count) // CORES_PER_CARD) * count
    return Fault(
        f"{format_cores(cores)} compute without memory is not a slice: add how much memory it shall have, "
        f"such as {memory_text(part)}, or ask for whole cards ({format_cores(count * CORES_PER_CARD)}).",
        replace(request, memory_units=part),
    )
