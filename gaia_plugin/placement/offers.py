"""What could be granted instead: the number that every refusal names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from gaia_plugin.placement.model import CardState, Request
from gaia_plugin.placement.rules import accepts, asks_whole_cards, cards_wanted, corrected, part_of_card
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD


@dataclass(frozen=True, slots=True)
class Offer:
    """A request that would be granted now, and what it would hold in total.

    For whole cards of different sizes the total counts each as the smallest of them, so that it is
    granted whichever cards are chosen.
    """

    request: Request
    total: Share


def usable(request: Request, cards: Iterable[CardState]) -> list[CardState]:
    """Return the healthy cards of an accepted model in one order: larger first, then by UUID."""
    found = [c for c in cards if c.healthy and c.capacity.units > 0 and accepts(request.models, c.model)]
    return sorted(found, key=lambda c: (-c.capacity.units, c.uuid))


def largest_free(cards: Iterable[CardState]) -> Share | None:
    """Return what is free on the card that could give the largest slice; None if none can give any.

    Largest is by the scarcer of memory and compute, as a part of the card.
    """
    open_cards = [c for c in cards if c.healthy and c.capacity.units > 0 and Share(1, 1).fits(c.free)]
    if not open_cards:
        return None

    def size(card: CardState) -> tuple[int, int, int]:
        part = min(card.free.units * CORES_PER_CARD // card.capacity.units, card.free.cores)
        return part, card.free.units, card.free.cores

    return max(open_cards, key=size).free


def best_offer(request: Request, cards: Sequence[CardState]) -> Offer | None:
    """Return the largest request like this one that would be granted now; itself, if it would be.

    It keeps the number of cards as long as that many have any room, and keeps whole cards whole as
    long as one is free. Of memory and compute it gives up as equal a part as it can. Not one unit
    and not one core more, up to what was asked, would be granted. None: nothing would.
    """
    room = usable(request, cards)
    sound = corrected(request, room[0]) if room else None
    if sound is None:
        return None
    if asks_whole_cards(sound):
        return _whole_cards(sound, room) or _part(sound, Share(room[0].capacity.units, CORES_PER_CARD), room)
    if sound.cores is None:
        # Where even a unit comes with more compute than is free, less compute is the only offer.
        most = Share(sound.memory_units or 0, CORES_PER_CARD)
        return _memory_alone(sound, room) or _part(sound, most, room)
    return _both(sound, room)


def _whole_cards(request: Request, room: Sequence[CardState]) -> Offer | None:
    idle = [c for c in room if Share(c.capacity.units, CORES_PER_CARD).fits(c.free)]
    count = min(cards_wanted(request), len(idle))
    if count == 0:
        return None
    smallest = min(c.capacity.units for c in idle)
    cores = count * CORES_PER_CARD
    return Offer(
        replace(request, cores=cores, count=min(request.count, count)), Share(count * smallest, cores)
    )


def _memory_alone(request: Request, room: Sequence[CardState]) -> Offer | None:
    wanted = request.memory_units or 0
    for count in range(min(cards_wanted(request), len(room)), 0, -1):
        most = sorted((_most_units(card, wanted // count) for card in room), reverse=True)
        units = most[count - 1]
        if units:
            takers = [c for c in room if _most_units(c, units) == units]
            cores = min(part_of_card(units, c.capacity.units) for c in takers)
            instead = replace(request, memory_units=units * count, count=count)
            return Offer(instead, Share(units * count, cores * count))
    return None


def _most_units(card: CardState, wanted: int) -> int:
    """Return the most units up to `wanted` that fit together with the cores they come with."""

    def fits(units: int) -> bool:
        return Share(units, part_of_card(units, card.capacity.units)).fits(card.free)

    return _last(fits, wanted)


def _last(holds: Callable[[int], bool], end: int) -> int:
    """Return the last number up to `end` for which `holds`, which once false stays false; else 0."""
    low, high = 0, end
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _both(request: Request, room: Sequence[CardState]) -> Offer | None:
    wanted = Share(request.memory_units or 0, request.cores or 0)
    whole = request.count < cards_wanted(request)
    for count in range(min(cards_wanted(request), len(room)), 0, -1):
        if whole:
            each = Share(wanted.units // count, CORES_PER_CARD)
            given = _largest_common(each, count, room, keep_cores=True)
        else:
            each = Share(wanted.units // count, min(wanted.cores // count, CORES_PER_CARD))
            given = _largest_common(each, count, room)
        if given is not None:
            amounts = Share(given.units * count, given.cores * count)
            return Offer(_explicit(request, amounts, 1 if whole else count), amounts)
    return _part(request, Share(wanted.units, CORES_PER_CARD), room) if whole else None


def _part(request: Request, wanted: Share, room: Sequence[CardState]) -> Offer | None:
    given = _largest_common(wanted, 1, room)
    return Offer(_explicit(request, given, 1), given) if given is not None else None


def _explicit(request: Request, amounts: Share, count: int) -> Request:
    return replace(request, memory_units=amounts.units, cores=amounts.cores, count=count)


def _largest_common(
    wanted: Share, count: int, room: Sequence[CardState], *, keep_cores: bool = False
) -> Share | None:
    """Return the largest share up to `wanted` that `count` cards have free; None if there is none.

    Only amounts at which some card's room ends, or the wish itself, can be the largest.
    """
    units = {min(wanted.units, card.free.units) for card in room}
    cores = {wanted.cores} if keep_cores else {min(wanted.cores, card.free.cores) for card in room}
    shares = [Share(u, c) for u in units for c in cores if u > 0 and c > 0]
    common = [share for share in shares if sum(share.fits(card.free) for card in room) >= count]

    def nearness(share: Share) -> tuple[int, int, int]:
        return min(share.units * wanted.cores, share.cores * wanted.units), share.units, share.cores

    return max(common, key=nearness, default=None)
