"""The rules of granting: a book and a wish in, a new book out, or a refusal. No effects.

The order of steps around these (what is committed before what is stored in a page) is the
caller's; `docs/design` has it. What is kept here: capacity counts `held`; `target` is what the
page says; a grow books first, a shrink books last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger.book import LARGEST, MOST_CARDS, Book, CardEntry
from gaia_plugin.ledger.offers import refuse_full, refuse_grant, refuse_over_maximum, room
from gaia_plugin.ledger.records import CardCapacity, SliceRecord, SlotRecord, total
from gaia_plugin.placement.model import CardState, Slice
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import MEMORY_UNIT, format_memory

SMALLEST = Share(1, 1)
"""The smallest slice of a card that may be granted."""

MODES: Final = ("hard", "elastic")
"""How a compute share is held: as a ceiling, or as a floor."""


def states(book: Book) -> list[CardState]:
    """Return the cards as placement sees them, by index; free is never below zero."""
    entries = sorted(book.cards.items(), key=lambda item: (item[1].capacity.index, item[0]))
    return [
        CardState(
            uuid=uuid,
            model=entry.capacity.name,
            capacity=entry.capacity.share,
            free=book.free_on(uuid).most(NOTHING),
            healthy=entry.usable,
        )
        for uuid, entry in entries
    ]


def find(book: Book, slot: str) -> SlotRecord:
    """Return the slot of that name.

    Raises:
        Refusal: code ``no_such_slot``.
    """
    record = book.slots.get(slot)
    if record is None:
        raise Refusal(Code.NO_SUCH_SLOT, f"There is no slot {slot!r} on this machine.")
    return record


def set_cards(book: Book, cards: Iterable[CardCapacity]) -> Book:
    """Put `cards` in place of the cards known; one that left stays known while a slot is on it.

    Raises:
        ValueError: two cards with one UUID, or a capacity that is negative or absurd.
    """
    listed = list(cards)
    if len({card.uuid for card in listed}) != len(listed):
        raise ValueError("two cards have the same UUID")
    if not all(NOTHING.fits(card.share) and card.share.fits(Share(LARGEST, LARGEST)) for card in listed):
        raise ValueError("a card's capacity is out of range")
    gone = {uuid: replace(entry, present=False) for uuid, entry in book.cards.items()}
    return replace(book, cards={**gone, **{card.uuid: CardEntry(card) for card in listed}})


def grant(book: Book, new: SlotRecord, slices: Sequence[Slice]) -> Book:
    """Add `new` with `slices` requested, in force and booked at once.

    Raises:
        Refusal: ``slot_exists``, ``invalid_amount``, ``no_such_card``, ``over_maximum``, ``card_full``
            or ``unavailable`` (a card that is not healthy).
    """
    if new.slot in book.slots:
        raise Refusal(Code.SLOT_EXISTS, f"There is a slot {new.slot!r} already; it has to be released first.")
    if new.compute not in MODES:
        raise Refusal(
            Code.INVALID_AMOUNT,
            f"{new.compute[:40]!r} is no mode of compute; it is hard (never more than the share) or elastic "
            "(more while the card is idle).",
        )
    if not 1 <= len(slices) <= MOST_CARDS or len({part.card for part in slices}) != len(slices):
        raise Refusal(Code.INVALID_AMOUNT, f"A slot takes between 1 and {MOST_CARDS} distinct cards.")
    for part in slices:
        entry = book.cards.get(part.card)
        if entry is None:
            raise _no_such_card(part.card)
        if not entry.usable:
            raise Refusal(
                Code.UNAVAILABLE, f"Card {entry.capacity.index} is not healthy; nothing starts there."
            )
    _within_reason({part.card: part.share for part in slices}, new.maximum)
    asked = total(part.share for part in slices)
    full = replace(new, slices=tuple(SliceRecord(p.card, p.share, p.share, p.share) for p in slices))
    if not asked.fits(new.maximum):
        best = asked.least(new.maximum)
        raise Refusal(
            Code.OVER_MAXIMUM,
            f"This slot may have at most {format_memory(new.maximum.units * MEMORY_UNIT)} "
            f"and {new.maximum.cores} % in total.",
            best_memory=best.units * MEMORY_UNIT,
            best_cores=best.cores,
        )
    if not all(part.share.fits(book.free_on(part.card)) for part in slices):
        raise refuse_grant(book, slices)
    return book.with_slot(full)


def reserved(book: Book, slot: str) -> Book:
    """Put nothing of a slot that was just granted in force; it stays booked."""
    record = find(book, slot)
    return book.with_slot(
        replace(record, slices=tuple(replace(part, target=NOTHING) for part in record.slices))
    )


def take_back(book: Book, slot: str) -> Book:
    """Strike out a slot that was reserved and never in force.

    Raises:
        Refusal: ``no_such_slot``; ``unavailable`` when it has been in force.
    """
    record = find(book, slot)
    if not record.reserved:
        raise Refusal(Code.UNAVAILABLE, f"The slot {slot!r} is in force; it has to be released.")
    return book.without_slot(slot)


def adopt(book: Book, record: SlotRecord) -> Book:
    """Add a slot that runs already, whatever is free; cards that are not known have left.

    Raises:
        Refusal: ``slot_exists``.
    """
    if record.slot in book.slots:
        raise Refusal(Code.SLOT_EXISTS, f"There is a slot {record.slot!r} already.")
    gone = {
        part.card: CardEntry(CardCapacity(part.card, -1, "unknown", 0, 0, False), present=False)
        for part in record.slices
        if part.card not in book.cards
    }
    return replace(book, cards={**gone, **book.cards}).with_slot(record)


def amend(book: Book, slot: str, label: str, maximum: Share) -> Book:
    """Change a slot's label and maximum; the maximum never falls below what is in force.

    Raises:
        Refusal: ``no_such_slot``.
    """
    record = find(book, slot)
    return book.with_slot(replace(record, label=label, maximum=maximum.most(record.target)))


def target_of(
    book: Book, slot: str, new: Mapping[str, Share], generation: int | None
) -> tuple[SlotRecord, dict[str, Share]]:
    """Return the slot and the full targets that `new` means; cards left out stay as they are.

    Raises:
        Refusal: ``no_such_slot`` (also while it is being released), ``stale``, ``no_such_card``,
            ``invalid_amount``, ``over_maximum``, ``card_full``, ``unavailable``.
    """
    record = find(book, slot)
    if record.releasing:
        raise Refusal(Code.NO_SUCH_SLOT, f"The slot {slot!r} is being released; it cannot change any more.")
    if record.reserved:
        raise Refusal(Code.UNAVAILABLE, f"The slot {slot!r} is just being made; try again in a moment.")
    fresh(record, generation)
    for card in new:
        if record.on(card) is None:
            raise _no_such_card(card)
    _within_reason(new, record.maximum)
    wanted = {part.card: new.get(part.card, part.target) for part in record.slices}
    asked = total(wanted.values())
    if not asked.fits(record.maximum):
        raise refuse_over_maximum(book, record, asked)
    if not all(wanted[part.card].fits(room(book, part).most(part.target)) for part in record.slices):
        raise refuse_full(book, record, wanted)
    return record, wanted


def fresh(record: SlotRecord, generation: int | None) -> None:
    """Refuse a change that was decided on another state of the slot; None asks for no check."""
    if generation is not None and generation != record.generation:
        raise Refusal(
            Code.STALE,
            f"The slot {record.slot!r} has changed meanwhile: it is at generation {record.generation}, "
            f"the request was made for {generation}. Look at it again and repeat the request.",
        )


def hold(book: Book, record: SlotRecord, wanted: Mapping[str, Share]) -> Book:
    """Book what `wanted` needs on top of what is booked; what is in force stays."""
    slices = tuple(replace(part, held=part.held.most(wanted[part.card])) for part in record.slices)
    return book.with_slot(replace(record, slices=slices))


def aim(book: Book, record: SlotRecord, wanted: Mapping[str, Share]) -> Book:
    """Put `wanted` in force and see that it is booked; nothing booked is given back."""
    slices = tuple(
        replace(part, target=wanted[part.card], held=part.held.most(wanted[part.card]))
        for part in record.slices
    )
    changed = any(part.target != wanted[part.card] for part in record.slices)
    return book.with_slot(replace(record, slices=slices, generation=record.generation + changed))


def settle(
    book: Book, slot: str, generation: int, use: Mapping[str, int], wanted: Mapping[str, Share]
) -> Book:
    """Give back what is booked beyond target and `use` (units by card, measured after the store).

    A card that `use` leaves out keeps its memory. Cores need no measuring: they fall to the target.
    `wanted` is what a grow under way still needs.

    Raises:
        Refusal: ``no_such_slot``, ``stale``.
    """
    record = find(book, slot)
    fresh(record, generation)
    return book.with_slot(
        replace(
            record,
            slices=tuple(_settled(part, use, wanted.get(part.card, NOTHING)) for part in record.slices),
        )
    )


def _settled(part: SliceRecord, use: Mapping[str, int], wanted: Share) -> SliceRecord:
    floor = part.target.most(wanted)
    measured = use.get(part.card, part.held.units)
    least = Share(max(floor.units, measured), floor.cores)
    return replace(part, held=part.held.least(least))


def raise_held(book: Book, slot: str, card: str, units: int) -> Book:
    """Book what a slot was found to use on a card, even past the card.

    Raises:
        Refusal: ``no_such_slot``, ``no_such_card``.
    """
    record = find(book, slot)
    if record.on(card) is None:
        raise _no_such_card(card)
    most = Share(min(units, LARGEST), 0)
    slices = tuple(
        replace(part, held=part.held.most(most)) if part.card == card else part for part in record.slices
    )
    return book.with_slot(replace(record, slices=slices))


def release(book: Book, slot: str) -> Book:
    """Shrink a slot to nothing for good; it stays booked until it settles.

    Raises:
        Refusal: ``no_such_slot``.
    """
    record = find(book, slot)
    if record.releasing:
        return book
    emptied = aim(book, record, {part.card: NOTHING for part in record.slices})
    return emptied.with_slot(replace(emptied.slots[slot], releasing=True))


def remove(book: Book, slot: str) -> Book:
    """Strike out a slot that holds nothing any more.

    Raises:
        Refusal: ``no_such_slot``; ``unavailable`` while it holds anything.
    """
    record = find(book, slot)
    if record.held != NOTHING:
        raise Refusal(
            Code.UNAVAILABLE,
            f"The slot {slot!r} still holds {format_memory(record.held.units * MEMORY_UNIT)} "
            f"and {record.held.cores} %; it goes when its programs have ended.",
        )
    return book.without_slot(slot)


def own(book: Book, slot: str, process: int, process_start: int) -> Book:
    """Note the process whose end releases the slot.

    Raises:
        Refusal: ``no_such_slot``, also while it is being released.
    """
    record = find(book, slot)
    if record.releasing:
        raise Refusal(
            Code.NO_SUCH_SLOT, f"The slot {slot!r} is being released; it takes no process any more."
        )
    return book.with_slot(replace(record, process=process, process_start=process_start))


def _within_reason(shares: Mapping[str, Share], maximum: Share) -> None:
    if not all(SMALLEST.fits(share) for share in shares.values()):
        raise Refusal(
            Code.INVALID_AMOUNT,
            f"The smallest slice of a card is {format_memory(MEMORY_UNIT)} and 1 %.",
            best_memory=None,
            best_cores=None,
        )
    if not maximum.fits(Share(LARGEST, LARGEST)):
        raise Refusal(Code.INVALID_AMOUNT, "The maximum is larger than any machine.")


def _no_such_card(card: str) -> Refusal:
    return Refusal(Code.NO_SUCH_CARD, f"There is no card {card!r} here.")
