"""The ledger: one SQLite file, one writer, every invariant checked before each commit.

The agent holds an exclusive lock on its state directory while it uses this, so there is one
ledger object at a time; the transactions still stand on their own, so that a SIGKILL at any
instruction leaves the last committed book.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gaia_plugin.counted import Holder, Parts
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import offers, rules, schema
from gaia_plugin.ledger.book import Book, closed, violations
from gaia_plugin.ledger.faults import LedgerBroken, faults
from gaia_plugin.ledger.opening import open_file
from gaia_plugin.ledger.records import CardCapacity, SlotRecord
from gaia_plugin.ledger.waiting import Growing, crowded_out, unbooked
from gaia_plugin.placement.model import CardState, Slice
from gaia_plugin.shares import NOTHING, Share

NOBODY: Final = Holder("", "")
"""Who has what is in use in no slot; no container has this name."""


class Ledger:
    """The durable record of slots at `path`, made if it is not there.

    Methods may be called from any thread; each is one transaction.

    Args:
        path: of the file.
        lazy: wait for the disk where a slot changes its size only, and in `tidy`. For slots that nothing is
            left of after a power cut, which begin anew with their containers; a kill of this process loses
            nothing.

    Raises:
        Unusable: the file is damaged, foreign, of a newer Gaia, or cannot be opened.
    """

    def __init__(self, path: Path, *, lazy: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        # grows between `hold` and `commit`, oldest first. Kept in memory on purpose: after a crash such a
        # grow is forgotten, its booking looks like draining and falls by itself.
        self._growing: dict[str, Growing] = {}
        self._in_vain: dict[str, Growing] = {}
        # likewise: whoever wrote them down can be asked again
        self._reserved: dict[Holder, dict[str, Share]] = {}
        self._foreign: dict[str, Share] = {}
        self._known: tuple[int, Book] | None = None
        self._connection = open_file(self.path)
        self._lazy = lazy
        if lazy:
            self._connection.execute("PRAGMA wal_autocheckpoint = 0")
            self._hurry(False)

    def close(self) -> None:
        """Close the file; what was not committed is forgotten."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- reading

    def cards(self) -> list[CardCapacity]:
        """Return the cards by index; one that left while a slot is on it comes as not healthy."""
        entries = self._read().cards.values()
        return [
            CardCapacity(c.uuid, c.index, c.name, c.units, c.cores, entry.usable)
            for entry in sorted(entries, key=lambda entry: (entry.capacity.index, entry.capacity.uuid))
            for c in (entry.capacity,)
        ]

    def free(self) -> dict[str, Share]:
        """Return what is free on each card, by UUID: capacity less all `held`, never below zero."""
        book = self._read()
        return {uuid: book.free_on(uuid).most(NOTHING) for uuid in book.cards}

    def overbooked(self) -> dict[str, Share]:
        """Return the cards on which more is held than they have, and by how much."""
        return {uuid: entry.over for uuid, entry in self._read().cards.items() if entry.over != NOTHING}

    def states(self) -> list[CardState]:
        """Return the cards as placement sees them, by index."""
        return rules.states(self._read())

    def slots(self) -> list[SlotRecord]:
        """Return all slots, oldest first."""
        return list(self._read().slots.values())

    def slots_as_told(self) -> list[SlotRecord]:
        """Return all slots without what is booked for grows that are not in force, or was booked in vain.

        What was booked and cannot be had is nobody's for a moment; whoever fails for good where there is no
        room must not see it.
        """
        with self._lock:
            book, grows = self._read(), {**self._in_vain, **self._growing}
            return [
                record
                if (grow := grows.get(name)) is None or grow.before is None
                else unbooked(record, grow.before)
                for name, record in book.slots.items()
            ]

    def slot(self, slot: str) -> SlotRecord:
        """Return one slot.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        return rules.find(self._read(), slot)

    def could_reach(self, slot: str) -> Share:
        """Return the totals that an even resize of `slot` would be granted now.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        book = self._read()
        return offers.reach(book, rules.find(book, slot))

    # -- cards

    def set_cards(self, cards: Iterable[CardCapacity]) -> None:
        """Say which cards the machine has now.

        A card that left, or that is not healthy, keeps its slots and gets nothing new. One that
        became smaller than its bookings is noted as overbooked.
        """
        listed = list(cards)
        self._write(lambda book: rules.set_cards(book, listed), may_overbook=True)

    # -- what others have promised

    def set_reservations(self, reserved: Mapping[Holder, Parts]) -> None:
        """Say what is promised to containers, beside the slots: nothing else is granted there.

        A reservation counts until its container has a slot, see `gaia_plugin.counted`. Reservations on cards
        that are not here count for nothing.
        """
        with self._lock:
            self._reserved = {holder: dict(parts) for holder, parts in reserved.items()}
            self._known = None

    def reservations(self) -> Mapping[Holder, Parts]:
        """Return what `set_reservations` was told last."""
        with self._lock:
            return dict(self._reserved)

    def set_foreign(self, units: Mapping[str, int]) -> None:
        """Say how many units of each card are in use by nobody's slot: they are not granted to anybody.

        Known in memory only, as reservations are; cores are not concerned.
        """
        with self._lock:
            self._foreign = {card: Share(each, 0) for card, each in units.items() if each > 0}
            self._known = None

    def foreign(self) -> Mapping[str, int]:
        """Return what `set_foreign` was told last; cards without such use are left out."""
        with self._lock:
            return {card: share.units for card, share in self._foreign.items()}

    def crowded_out(self, waiting: Iterable[str]) -> dict[str, Refusal]:
        """Return which grows under way find no room beside the reservations, with what they are told.

        Args:
            waiting: slots whose grows are not announced yet; the newest of them loses first.
        """
        with self._lock:
            asked = set(waiting)
            return crowded_out(
                self._read(), [(slot, grow) for slot, grow in self._growing.items() if slot in asked]
            )

    # -- slots

    def grant(
        self,
        slot: str,
        owner: str,
        name: str,
        choose: Callable[[list[CardState]], Sequence[Slice]],
        maximum: Share,
        compute: str,
        process: int | None = None,
        process_start: int | None = None,
        *,
        label: str = "",
    ) -> SlotRecord:
        """Make a slot on the cards that `choose` picks; it runs inside the transaction.

        Raises:
            Refusal: what `choose` raises; ``slot_exists``, ``invalid_amount``, ``no_such_card``,
                ``over_maximum``, ``card_full``, ``unavailable``.
        """
        new = SlotRecord(
            slot, owner, name, 1, False, compute, maximum, (), process, process_start, time.time(), label
        )
        return self._write(lambda book: _granted(book, new, choose)).slots[slot]

    def reserve(
        self,
        slot: str,
        owner: str,
        name: str,
        choose: Callable[[list[CardState]], Sequence[Slice]],
        maximum: Share,
        compute: str,
        *,
        label: str = "",
    ) -> SlotRecord:
        """Begin a slot as a grow from nothing: booked, not in force; `commit` or `take_back` must follow.

        Raises:
            Refusal: as `grant`.
        """
        new = SlotRecord(slot, owner, name, 1, False, compute, maximum, (), None, None, time.time(), label)
        with self._lock:
            after = self._write(lambda book: rules.reserved(_granted(book, new, choose), slot))
            record = after.slots[slot]
            self._growing.pop(slot, None)  # so that it is the newest
            self._growing[slot] = Growing(
                record.generation, {part.card: part.requested for part in record.slices}
            )
            return record

    def take_back(self, slot: str) -> None:
        """Strike out a slot that was reserved and never in force, with what was booked for it.

        Raises:
            Refusal: ``no_such_slot``; ``unavailable`` when it has been in force.
        """
        with self._lock:
            self._write(lambda book: rules.take_back(book, slot))
            self._growing.pop(slot, None)

    def adopt(self, record: SlotRecord) -> SlotRecord:
        """Book a slot that runs although this ledger does not know it, even past the card.

        For a ledger that was lost. A card that is not there is noted as one that left.

        Raises:
            Refusal: code ``slot_exists``.
        """
        return self._write(lambda book: rules.adopt(book, record), may_overbook=True).slots[record.slot]

    def amend(self, slot: str, label: str, maximum: Share) -> SlotRecord:
        """Complete a slot that was adopted; a maximum below what is in force becomes what is in force.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        return self._write(lambda book: rules.amend(book, slot, label, maximum)).slots[slot]

    def hold(self, slot: str, new: Mapping[str, Share], generation: int | None = None) -> SlotRecord:
        """Begin a grow: book what targets `new` (by card) need; `commit` or `undo` must follow.

        Raises:
            Refusal: as `resize`; ``unavailable`` while another grow of the slot is under way.
        """
        with self._lock:
            if slot in self._growing:
                raise Refusal(
                    Code.UNAVAILABLE, f"Another change of slot {slot!r} is under way; try again in a moment."
                )
            begun: list[Growing] = []

            def change(book: Book) -> Book:
                record, targets = rules.target_of(book, slot, new, generation)
                begun.append(Growing(record.generation, targets, record))
                return rules.hold(book, record, targets)

            with self._hurried():
                record = self._write(change).slots[slot]
            self._growing[slot] = begun[0]
            return record

    def commit(self, slot: str, generation: int | None = None) -> SlotRecord:
        """Finish a grow: what `hold` booked is in force; the page may be stored afterwards.

        `generation` is the slot's at `hold`: a grow that was booked since is another's.

        Raises:
            Refusal: ``stale``, when the slot changed since `hold`, or no grow is under way.
        """
        with self._lock:
            rules.fresh(self.slot(slot), generation)
            grow = self._growing.get(slot, Growing(-1, {}))

            def change(book: Book) -> Book:
                record = rules.find(book, slot)
                rules.fresh(record, grow.generation)
                return rules.aim(book, record, grow.wanted)

            try:
                # a new slot's answer need not survive a power cut: its container does not either
                with contextlib.nullcontext() if grow.before is None else self._hurried():
                    return self._write(change).slots[slot]
            finally:
                self._growing.pop(slot, None)

    def undo(self, slot: str, generation: int | None = None) -> SlotRecord:
        """Give a grow up: what is in force never moved, what was booked falls with `settle`; see `commit`.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        with self._lock:
            grow = self._growing.get(slot)
            if grow is not None and generation in (None, grow.generation):
                self._in_vain[slot] = self._growing.pop(slot)
            return self.slot(slot)

    def resize(self, slot: str, new: Mapping[str, Share], generation: int | None = None) -> SlotRecord:
        """Put targets `new` (by card; cards left out stay) in force, booked in the same transaction.

        What is given back stays booked until `settle`.

        Raises:
            Refusal: ``no_such_slot``, ``stale``, ``no_such_card``, ``invalid_amount``,
                ``over_maximum``, ``card_full``, ``unavailable``; nothing changed then.
        """

        def change(book: Book) -> Book:
            return rules.aim(book, *rules.target_of(book, slot, new, generation))

        with self._lock:
            with self._hurried():
                after = self._write(change)
            self._forget_stale_grow(after, slot)
            return after.slots[slot]

    def settle(self, slot: str, generation: int, use: Mapping[str, int]) -> SlotRecord:
        """Give back what is booked beyond both target and `use`.

        Args:
            slot: its name.
            generation: of the target whose page was stored before `use` was measured.
            use: units by card (see `gaia_plugin.slots.draining`). A card left out was not
                measured and keeps its memory; cores always fall to the target.

        Raises:
            Refusal: ``no_such_slot``, ``stale``.
        """
        with self._lock:
            wanted = self._growing.get(slot, Growing(0, {})).wanted
            self._in_vain.pop(slot, None)
            return self._write(lambda book: rules.settle(book, slot, generation, use, wanted)).slots[slot]

    def raise_held(self, slot: str, card: str, units: int) -> SlotRecord:
        """Book at once what a slot was found to use on `card`, even past the card.

        Raises:
            Refusal: ``no_such_slot``, ``no_such_card``.
        """
        return self._write(lambda book: rules.raise_held(book, slot, card, units), may_overbook=True).slots[
            slot
        ]

    def release(self, slot: str) -> SlotRecord:
        """Shrink a slot to nothing for good; it is removed when it has settled. Again: no change.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        with self._lock:
            after = self._write(lambda book: rules.release(book, slot))
            self._forget_stale_grow(after, slot)
            return after.slots[slot]

    def remove(self, slot: str) -> None:
        """Strike out a slot that holds nothing; its directory must go after this, not before.

        Raises:
            Refusal: ``no_such_slot``; ``unavailable`` while it holds anything.
        """
        self._write(lambda book: rules.remove(book, slot))

    def own(self, slot: str, process: int, process_start: int) -> SlotRecord:
        """Note the process whose end releases the slot.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        return self._write(lambda book: rules.own(book, slot, process, process_start)).slots[slot]

    def note_desired(self, slot: str, desired: str) -> SlotRecord:
        """Write a note beside a slot, for whoever carries out wishes from elsewhere; it grants nothing.

        Raises:
            Refusal: code ``no_such_slot``.
        """

        def change(book: Book) -> Book:
            return book.with_slot(replace(rules.find(book, slot), desired=desired))

        return self._write(change).slots[slot]

    # -- transactions

    def tidy(self) -> None:
        """Move what was written into the file proper, where this ledger does not do so by itself.

        On a connection of its own: nobody else waits for the disk meanwhile.
        """
        if not self._lazy:
            return
        with faults(self.path), contextlib.closing(sqlite3.connect(self.path, timeout=1)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _hurry(self, now: bool) -> None:
        if self._lazy:
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if now else 'NORMAL'}")

    @contextlib.contextmanager
    def _hurried(self) -> Iterator[None]:
        """Let what is written within survive a power cut: an answer is given upon it."""
        self._hurry(True)
        try:
            yield
        finally:
            self._hurry(False)

    def _forget_stale_grow(self, book: Book, slot: str) -> None:
        for grows in (self._growing, self._in_vain):
            if slot in grows and grows[slot].generation != book.slots[slot].generation:
                del grows[slot]

    def _read(self) -> Book:
        with self._lock, faults(self.path):
            # changes when another connection has written; what we write ourselves drops what is known
            version = self._connection.execute("PRAGMA data_version").fetchone()[0]
            if self._known is not None and self._known[0] == version:
                return self._known[1]
            self._connection.execute("BEGIN")
            try:
                book = self._book()
            finally:
                self._connection.execute("ROLLBACK")
            self._known = version, book
            return book

    def _book(self) -> Book:
        """Return the book as the file has it, with what is known beside it."""
        taken = {NOBODY: self._foreign} if self._foreign else {}
        return replace(schema.read(self._connection), reserved={**self._reserved, **taken})

    def _write(self, change: Callable[[Book], Book], *, may_overbook: bool = False) -> Book:
        with self._lock, faults(self.path):
            known, self._known = self._known, None
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                version = self._connection.execute("PRAGMA data_version").fetchone()[0]
                before = known[1] if known is not None and known[0] == version else self._book()
                after = closed(change(before), may_overbook=may_overbook)
                broken = violations(after)
                if broken:
                    raise LedgerBroken("; ".join(broken))
                schema.write(self._connection, before, after)
                self._commit()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return after

    def _commit(self) -> None:
        self._connection.execute("COMMIT")


def _granted(book: Book, new: SlotRecord, choose: Callable[[list[CardState]], Sequence[Slice]]) -> Book:
    # asked before `choose`, whose refusal would hide the plainer reason
    if new.slot in book.slots:
        return rules.grant(book, new, ())
    room = book.open_to(new.holder)  # what is reserved for it is room for nobody else
    after = rules.grant(room, new, tuple(choose(rules.states(room))))
    return replace(after, reserved=book.reserved)
