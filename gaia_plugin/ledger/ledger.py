"""The ledger: one SQLite file, one writer, every invariant checked before each commit.

The agent holds an exclusive lock on its state directory while it uses this, so there is one
ledger object at a time; the transactions still stand on their own, so that a SIGKILL at any
instruction leaves the last committed book.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.ledger import offers, rules, schema
from gaia_plugin.ledger.book import Book, closed, violations
from gaia_plugin.ledger.faults import LedgerBroken, damaged, faults
from gaia_plugin.ledger.records import CardCapacity, SlotRecord
from gaia_plugin.placement.model import CardState, Slice
from gaia_plugin.shares import NOTHING, Share


class Ledger:
    """The durable record of slots at `path`, made if it is not there.

    Methods may be called from any thread; each is one transaction.

    Args:
        path: of the file.
        lazy: wait for the disk at a resize only, and in `tidy`. For slots that nothing is left of after a
            power cut, which begin anew with their containers; a kill of this process loses nothing.

    Raises:
        Unusable: the file is damaged, foreign, of a newer Gaia, or cannot be opened.
    """

    def __init__(self, path: Path, *, lazy: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        # grows between `hold` and `commit`: slot -> (generation, targets). Kept in memory on purpose:
        # after a crash such a grow is forgotten, its booking looks like draining and falls by itself.
        self._growing: dict[str, tuple[int, dict[str, Share]]] = {}
        self._known: tuple[int, Book] | None = None
        self._connection = _open(self.path)
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
            self._growing[slot] = (record.generation, {part.card: part.requested for part in record.slices})
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
            wanted: dict[str, Share] = {}

            def change(book: Book) -> Book:
                record, targets = rules.target_of(book, slot, new, generation)
                wanted.update(targets)
                return rules.hold(book, record, targets)

            record = self._write(change).slots[slot]
            self._growing[slot] = (record.generation, wanted)
            return record

    def commit(self, slot: str) -> SlotRecord:
        """Finish a grow: what `hold` booked is in force; the page may be stored afterwards.

        Raises:
            Refusal: ``stale``, when the slot changed since `hold`, or no grow is under way.
        """
        with self._lock:
            generation, wanted = self._growing.get(slot, (-1, {}))

            def change(book: Book) -> Book:
                record = rules.find(book, slot)
                rules.fresh(record, generation)
                return rules.aim(book, record, wanted)

            try:
                return self._write(change).slots[slot]
            finally:
                self._growing.pop(slot, None)

    def undo(self, slot: str) -> SlotRecord:
        """Give a grow up: what is in force never moved, what was booked falls with `settle`.

        Raises:
            Refusal: code ``no_such_slot``.
        """
        with self._lock:
            self._growing.pop(slot, None)
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
            self._hurry(True)  # the answer must survive a power cut
            try:
                after = self._write(change)
            finally:
                self._hurry(False)
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
            wanted = self._growing.get(slot, (0, {}))[1]
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

    def _forget_stale_grow(self, book: Book, slot: str) -> None:
        if slot in self._growing and self._growing[slot][0] != book.slots[slot].generation:
            del self._growing[slot]

    def _read(self) -> Book:
        with self._lock, faults(self.path):
            # changes when another connection has written; what we write ourselves drops what is known
            version = self._connection.execute("PRAGMA data_version").fetchone()[0]
            if self._known is not None and self._known[0] == version:
                return self._known[1]
            self._connection.execute("BEGIN")
            try:
                book = schema.read(self._connection)
            finally:
                self._connection.execute("ROLLBACK")
            self._known = version, book
            return book

    def _write(self, change: Callable[[Book], Book], *, may_overbook: bool = False) -> Book:
        with self._lock, faults(self.path):
            known, self._known = self._known, None
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                version = self._connection.execute("PRAGMA data_version").fetchone()[0]
                before = (
                    known[1] if known is not None and known[0] == version else schema.read(self._connection)
                )
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
    return rules.grant(book, new, tuple(choose(rules.states(book))))


def _open(path: Path) -> sqlite3.Connection:
    try:
        # made by hand so that nobody else may ever read it; SQLite's companions take its mode
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as fault:
        raise Unusable(f"The ledger {path} cannot be opened: {fault}.") from fault
    try:
        _prepare(connection, path)
    except sqlite3.OperationalError as fault:
        connection.close()
        raise Unusable(f"The ledger {path} cannot be opened: {fault}.") from fault
    except sqlite3.DatabaseError as fault:
        connection.close()
        raise damaged(path, str(fault)) from fault
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # FULL, because an answer that was given must survive a power cut
    for pragma in ("foreign_keys = ON", "synchronous = FULL", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    _identify(connection, path)  # before the first write: a file of somebody else's stays as it is
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _identify(connection, path):
            _make_tables(connection)
        _bring_up_to_date(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise damaged(path, str(verdict))
    broken = violations(schema.read(connection))
    if broken:
        raise damaged(path, "; ".join(broken))


def _identify(connection: sqlite3.Connection, path: Path) -> bool:
    """Tell whether the file has our tables; refuse one that is foreign or newer."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == 0 and version == 0 and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        return False
    if application != schema.APPLICATION_ID:
        raise Unusable(f"The file {path} is not a ledger of Gaia's; move it away and start again.")
    if version > schema.SCHEMA_VERSION:
        raise Unusable(
            f"The ledger {path} was written by a newer Gaia (schema {version}, this one knows "
            f"{schema.SCHEMA_VERSION}). Install that version again."
        )
    return True


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Change the tables of an older file, within the caller's transaction."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for newer in range(version + 1, schema.SCHEMA_VERSION + 1):
        for change in schema.CHANGES[newer]:
            connection.execute(change)
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")


def _make_tables(connection: sqlite3.Connection) -> None:
    for table in schema.TABLES:
        connection.execute(table)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
