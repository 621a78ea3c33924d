"""What people ask for, in the ledger's and the placement's terms. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gaia_plugin.api.models import NewSlot, Resize
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import CardCapacity, SlotRecord, split
from gaia_plugin.placement import Request, cards_wanted
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import parse_cores, parse_memory, units_up

LONGEST_NAME: Final = 100
_MOST_CORES_OF_A_CARD: Final = 100


def request_of(wish: NewSlot) -> Request:
    """Return what placement is asked for.

    Raises:
        Refusal: ``invalid_amount`` or ``bad_request``.
    """
    if not wish.owner or len(wish.owner) > LONGEST_NAME or len(wish.name) > LONGEST_NAME:
        raise Refusal(
            Code.BAD_REQUEST, f"A slot needs an owner; owner and name have at most {LONGEST_NAME} characters."
        )
    if not 1 <= wish.count <= 16:
        raise Refusal(Code.INVALID_AMOUNT, "A slot takes slices of 1 to 16 cards.")
    return Request(
        memory_units=None if wish.memory is None else units_up(parse_memory(wish.memory)),
        cores=None if wish.cores is None else parse_cores(wish.cores),
        count=wish.count,
        models=frozenset(wish.models),
    )


def maximum_of(wish: NewSlot, request: Request, cards: Iterable[CardCapacity]) -> Share:
    """Return how far the owner may go, over all cards; what is not said is the whole cards.

    Raises:
        Refusal: ``invalid_amount``.
    """
    count = cards_wanted(request)
    whole = NOTHING
    for card in cards:
        if not request.models or card.name in request.models:
            whole = whole.most(card.share)
    most = Share(whole.units * count, whole.cores * count)
    given = Share(
        most.units if wish.max_memory is None else units_up(parse_memory(wish.max_memory)),
        most.cores if wish.max_cores is None else parse_cores(wish.max_cores),
    )
    return given.least(most)


def shares_of(record: SlotRecord, wish: Resize) -> Mapping[str, Share]:
    """Return the new targets by card: totals evenly divided, or those of single cards.

    Raises:
        Refusal: ``invalid_amount``, ``bad_request`` or ``no_such_card``.
    """
    if wish.cards is None:
        if wish.memory is None and wish.cores is None:
            raise Refusal(Code.BAD_REQUEST, "Say what to change: memory, cores or both.")
        units = None if wish.memory is None else units_up(parse_memory(wish.memory))
        cores = None if wish.cores is None else parse_cores(wish.cores)
        return _bounded(record, split(record, units, cores))
    if wish.memory is not None or wish.cores is not None:
        raise Refusal(Code.BAD_REQUEST, "Name totals (memory, cores) or single cards, not both at once.")
    if not wish.cards:
        raise Refusal(Code.BAD_REQUEST, "Say what to change: cards is empty.")
    return _bounded(record, {uuid: _on_card(record, uuid, given) for uuid, given in wish.cards.items()})


def _on_card(record: SlotRecord, uuid: str, given: Mapping[str, object]) -> Share:
    part = record.on(uuid)
    if part is None:
        mine = ", ".join(each.card for each in record.slices)
        raise Refusal(Code.NO_SUCH_CARD, f"This slot has nothing on card {uuid[:60]}; it is on {mine}.")
    strange = sorted(set(given) - {"memory", "cores"})
    if strange or not given:
        raise Refusal(Code.BAD_REQUEST, "A card takes memory, cores or both, and nothing else.")
    memory, cores = given.get("memory"), given.get("cores")
    return Share(
        part.target.units if memory is None else units_up(parse_memory(memory)),
        part.target.cores if cores is None else parse_cores(cores),
    )


def _bounded(record: SlotRecord, shares: Mapping[str, Share]) -> Mapping[str, Share]:
    if any(share.cores > _MOST_CORES_OF_A_CARD for share in shares.values()):
        count = len(record.slices)
        most = _MOST_CORES_OF_A_CARD * count
        raise Refusal(
            Code.INVALID_AMOUNT,
            f"A whole card is {_MOST_CORES_OF_A_CARD} cores; this slot can have at most "
            f"{min(most, record.maximum.cores)} in total.",
        )
    return shares
