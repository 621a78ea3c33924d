"""The whole ledger as one value, and the one check of everything that must be true of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gaia_plugin.counted import Holder, Parts, counted
from gaia_plugin.ledger.records import CardCapacity, SlotRecord, total
from gaia_plugin.shares import NOTHING, Share

MOST_CARDS = 16
"""Cards of one slot; the pages have room for no more."""

LARGEST = 1 << 48
"""No count of units or cores in the ledger is larger; keeps every sum within SQLite's integers."""


@dataclass(frozen=True, slots=True)
class CardEntry:
    """A card in the book.

    `over` is by how much its bookings exceed it, because a program took more than it was granted
    or because the card became smaller; it only ever falls by itself.
    """

    capacity: CardCapacity
    present: bool = True
    over: Share = NOTHING

    @property
    def usable(self) -> bool:
        """Tell whether anything may be granted here."""
        return self.present and self.capacity.healthy


@dataclass(frozen=True, slots=True)
class Book:
    """All cards by UUID and all slots by name.

    `reserved` is what others have promised to containers, as far as is known. It is never written down:
    it makes room scarce, and no invariant counts it.
    """

    cards: Mapping[str, CardEntry]
    slots: Mapping[str, SlotRecord]
    reserved: Mapping[Holder, Parts] = field(default_factory=dict)

    def held_on(self, card: str) -> Share:
        """Return what all slots together have booked on `card`."""
        return total(part.held for slot in self.slots.values() for part in slot.slices if part.card == card)

    def free_on(self, card: str) -> Share:
        """Return capacity less what counts on the card; negative where that is more than it has."""
        capacity = self.cards[card].capacity.share
        if not self.reserved:  # the same, without a look at the other cards
            return capacity - self.held_on(card)
        return capacity - counted(self._held(), self.reserved).get(card, NOTHING)

    def _held(self) -> Mapping[Holder, Parts]:
        """Return what is booked, by container."""
        return {slot.holder: {part.card: part.held for part in slot.slices} for slot in self.slots.values()}

    def open_to(self, holder: Holder) -> Book:
        """Return the book as it is for a container that has no slot yet: its reservation is its own."""
        if holder not in self.reserved:
            return self
        return replace(self, reserved={key: value for key, value in self.reserved.items() if key != holder})

    def with_slot(self, slot: SlotRecord) -> Book:
        """Return the book with `slot` added or replaced."""
        return replace(self, slots={**self.slots, slot.slot: slot})

    def without_slot(self, slot: str) -> Book:
        """Return the book without `slot`."""
        return replace(self, slots={key: value for key, value in self.slots.items() if key != slot})


def closed(book: Book, *, may_overbook: bool) -> Book:
    """Return `book` as it may be written: overbooking noted, cards that left and are empty dropped.

    Only `may_overbook` lets a card's `over` rise; otherwise it can only fall, and a change that
    books more than the card has is left for `violations` to find.
    """
    used = {part.card for slot in book.slots.values() for part in slot.slices}
    cards = {}
    for uuid, entry in book.cards.items():
        if not entry.present and uuid not in used:
            continue
        excess = (book.held_on(uuid) - entry.capacity.share).most(NOTHING)
        cards[uuid] = replace(entry, over=excess if may_overbook else entry.over.least(excess))
    return replace(book, cards=cards)


def violations(book: Book) -> tuple[str, ...]:
    """Return a sentence for each invariant that `book` breaks; empty when it is sound."""
    found: list[str] = []
    for uuid, entry in book.cards.items():
        held = book.held_on(uuid)
        if not held.fits(entry.capacity.share + entry.over):
            found.append(f"card {uuid} has {entry.capacity.share} and {entry.over} over, {held} are held")
        if not NOTHING.fits(entry.over):
            found.append(f"card {uuid} is overbooked by a negative {entry.over}")
    for slot in book.slots.values():
        found += [f"slot {slot.slot}: {fault}" for fault in _slot_faults(book, slot)]
    return tuple(found)


def _slot_faults(book: Book, slot: SlotRecord) -> list[str]:
    found: list[str] = []
    cards = [part.card for part in slot.slices]
    if not 1 <= len(cards) <= MOST_CARDS or len(set(cards)) != len(cards):
        found.append(f"its cards are {cards}")
    if slot.generation < 1:
        found.append(f"its generation is {slot.generation}")
    if (slot.process is None) != (slot.process_start is None):
        found.append("its process is half known")
    if not slot.target.fits(slot.maximum):
        found.append(f"its target {slot.target} is above its maximum {slot.maximum}")
    if slot.releasing and slot.target != NOTHING:
        found.append(f"it is releasing and has a target of {slot.target}")
    for part in slot.slices:
        if part.card not in book.cards:
            found.append(f"it has a slice of the unknown card {part.card}")
        if not (NOTHING.fits(part.target) and NOTHING.fits(part.requested) and part.target.fits(part.held)):
            found.append(f"on {part.card} its target is {part.target}, held {part.held}")
    return found
