"""Grows between `hold` and `commit`, and which of them the reservations of others leave no room for. Pure.

What is booked first and announced afterwards may meet a reservation that was made in between. The room of
the reservation is not to be had, so a grow has to give way; of several the newest does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gaia_plugin.errors import Refusal
from gaia_plugin.ledger.book import Book
from gaia_plugin.ledger.offers import refuse_full, refuse_grant
from gaia_plugin.ledger.records import SlotRecord
from gaia_plugin.placement.model import Slice
from gaia_plugin.shares import NOTHING, Share


@dataclass(frozen=True, slots=True)
class Growing:
    """A grow under way: the slot's generation, the targets wanted by card, and the slot before it.

    `before` is None where the slot itself is new.
    """

    generation: int
    wanted: Mapping[str, Share]
    before: SlotRecord | None = None


def unbooked(record: SlotRecord, before: SlotRecord) -> SlotRecord:
    """Return a slot without what was booked for a grow; `before` is the slot before that."""
    parts = ((part, before.on(part.card)) for part in record.slices)
    slices = tuple(
        part if old is None else replace(part, held=part.target.most(part.held.least(old.held)))
        for part, old in parts
    )
    return replace(record, slices=slices)


def crowded_out(book: Book, waiting: Iterable[tuple[str, Growing]]) -> dict[str, Refusal]:
    """Return who cannot have what is booked for it, with what could be had instead.

    Args:
        book: with the reservations as they were just read, and all these grows booked.
        waiting: slots and their grows, oldest first; the newest loses first.
    """
    found: dict[str, Refusal] = {}
    for slot, grow in reversed(list(waiting)):
        record = book.slots.get(slot)
        if record is None or not _short(book, record, grow):
            continue
        book = _without(book, slot, grow)
        found[slot] = _refusal(book, grow, record)
    return found


def _short(book: Book, record: SlotRecord, grow: Growing) -> bool:
    """Tell whether a card is short of what this grow takes there; others' shortages are not its own.

    It takes all above what is in force: what is held beyond that may be booked in vain, and promised since.
    """
    for part in record.slices:
        taken = grow.wanted.get(part.card, NOTHING) - part.target
        free = book.free_on(part.card)
        if (taken.units > 0 and free.units < 0) or (taken.cores > 0 and free.cores < 0):
            return True
    return False


def _without(book: Book, slot: str, grow: Growing) -> Book:
    return book.without_slot(slot) if grow.before is None else book.with_slot(grow.before)


def _refusal(book: Book, grow: Growing, record: SlotRecord) -> Refusal:
    if grow.before is not None:
        return refuse_full(book, grow.before, grow.wanted)
    slices = [Slice(part.card, part.held) for part in record.slices]
    return refuse_grant(book.open_to(record.holder), slices)
