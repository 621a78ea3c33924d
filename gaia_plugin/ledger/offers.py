"""How far a slot could go, and what a refusal says about it.

An offer is always a total that divides evenly over the slot's cards, because that is how a plain
resize is read; asking for both numbers of an offer at once succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger.book import Book
from gaia_plugin.ledger.records import SliceRecord, SlotRecord, total
from gaia_plugin.placement.model import Slice
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import MEMORY_UNIT, format_cores, format_memory


def room(book: Book, part: SliceRecord) -> Share:
    """Return the most that the target of `part` may become on its card.

    What the slot already holds there counts as its own. Nothing grows on a card that is gone,
    unhealthy, or, in the respect concerned, overbooked.
    """
    if not book.cards[part.card].usable:
        return part.target
    free, grown = book.free_on(part.card), part.held + book.free_on(part.card)
    return Share(
        grown.units if free.units >= 0 else part.target.units,
        grown.cores if free.cores >= 0 else part.target.cores,
    )


def reach(book: Book, record: SlotRecord) -> Share:
    """Return the totals that an even resize of `record` would be granted now."""
    if record.releasing:
        return NOTHING
    return _even(book, record, None)


def offer(book: Book, record: SlotRecord, asked: Share) -> Share:
    """Return the totals nearest to `asked` (totals) that an even resize would be granted now."""
    return _even(book, record, asked)


def _even(book: Book, record: SlotRecord, asked: Share | None) -> Share:
    count = len(record.slices)
    each = Share(record.maximum.units // count, record.maximum.cores // count)
    for part in record.slices:
        each = each.least(room(book, part))
    if asked is not None:
        each = each.least(Share(max(1, asked.units // count), max(1, asked.cores // count)))
    return Share(each.units * count, each.cores * count)


def refuse_over_maximum(book: Book, record: SlotRecord, asked: Share) -> Refusal:
    """Say that `asked` is above the slot's maximum, and what would be granted."""
    best = offer(book, record, asked)
    limits = _amounts(record.maximum, asked, record.maximum)
    sentence = f"This slot may have at most {limits} in total"
    if not record.maximum.least(asked).fits(best):
        now = _amounts(best, record.maximum.least(asked), best)
        sentence += f"; {'its cards have' if len(record.slices) > 1 else 'its card has'} room for {now} now"
    return refusal(Code.OVER_MAXIMUM, sentence + ".", best)


def refuse_full(book: Book, record: SlotRecord, new: Mapping[str, Share]) -> Refusal:
    """Say which card lacks what for the targets `new`, and what would be granted."""
    best = offer(book, record, total(new.values()))
    short = next(
        part
        for part in record.slices
        if part.card in new and not new[part.card].fits(room(book, part).most(part.target))
    )
    entry = book.cards[short.card]
    where = "this card" if len(record.slices) == 1 else f"card {entry.capacity.index}"
    if not entry.usable:
        state = "is not healthy" if entry.present else "is gone"
        return refusal(
            Code.UNAVAILABLE,
            f"{where[0].upper()}{where[1:]} {state}; what this slot has there stays, but it cannot grow. "
            f"You can have up to {_both(best)} in total.",
            best,
        )
    most, asked = room(book, short), new[short.card]
    free = book.free_on(short.card).most(NOTHING)
    return refusal(
        Code.CARD_FULL,
        f"{_free(free, asked, most, where)}; you can have up to {_amounts(best, asked, most)} in total.",
        best,
    )


def refuse_grant(book: Book, slices: Sequence[Slice]) -> Refusal:
    """Say that a new slot's slices do not fit, and what would."""
    count = len(slices)
    asked = slices[0].share
    for part in slices:
        asked = asked.least(part.share)
    open_cards = sorted(
        (
            book.free_on(uuid).least(asked)
            for uuid, entry in book.cards.items()
            if entry.usable and Share(1, 1).fits(book.free_on(uuid))
        ),
        key=lambda free: (-free.units, -free.cores),
    )[:count]
    short = next(part for part in slices if not part.share.fits(book.free_on(part.card)))
    free = book.free_on(short.card).most(NOTHING)
    opening = _free(free, short.share, free, f"card {book.cards[short.card].capacity.index}")
    if len(open_cards) < count:
        return Refusal(Code.CARD_FULL, f"{opening}, and no other cards have room now.")
    each = open_cards[0]
    for part_free in open_cards:
        each = each.least(part_free)
    best = Share(each.units * count, each.cores * count)
    return refusal(Code.CARD_FULL, f"{opening}; you can have {_both(best)} in total.", best)


def refusal(code: Code, sentence: str, best: Share) -> Refusal:
    """Build a refusal that offers `best`, totals."""
    return Refusal(code, sentence, best_memory=best.units * MEMORY_UNIT, best_cores=best.cores)


def _free(free: Share, asked: Share, most: Share, where: str) -> str:
    """Say how little of what is short is free, as the opening of a sentence."""
    memory_short, cores_short = asked.units > most.units, asked.cores > most.cores
    if (not memory_short or not free.units) and (not cores_short or not free.cores):
        if memory_short and cores_short:
            return f"Nothing is free on {where}"
        return f"No memory is free on {where}" if memory_short else f"None of {where}'s time is free"
    if not cores_short:
        return f"Only {format_memory(free.units * MEMORY_UNIT)} are free on {where}"
    if not memory_short:
        return f"Only {format_cores(free.cores)} of {where}'s time is free"
    return f"Only {_both(free)} are free on {where}"


def _both(share: Share) -> str:
    return f"{format_memory(share.units * MEMORY_UNIT)} and {format_cores(share.cores)}"


def _amounts(shown: Share, asked: Share, bound: Share) -> str:
    """Write those respects of `shown` in which `asked` exceeds `bound`."""
    parts = []
    if asked.units > bound.units:
        parts.append(format_memory(shown.units * MEMORY_UNIT))
    if asked.cores > bound.cores:
        parts.append(format_cores(shown.cores))
    return " and ".join(parts)
