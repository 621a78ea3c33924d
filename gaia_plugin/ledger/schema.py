"""The ledger's tables, and the way between rows and the book."""

from __future__ import annotations

import sqlite3
from typing import Final

from gaia_plugin.ledger.book import Book, CardEntry
from gaia_plugin.ledger.records import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import Share

APPLICATION_ID: Final = 0x47414941  # "GAIA"
SCHEMA_VERSION: Final = 3

TABLES: Final = (
    """
    CREATE TABLE card (
        uuid TEXT PRIMARY KEY CHECK (uuid <> ''),
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        units INTEGER NOT NULL CHECK (units >= 0),
        cores INTEGER NOT NULL CHECK (cores >= 0),
        healthy INTEGER NOT NULL CHECK (healthy IN (0, 1)),
        present INTEGER NOT NULL CHECK (present IN (0, 1)),
        over_units INTEGER NOT NULL CHECK (over_units >= 0),
        over_cores INTEGER NOT NULL CHECK (over_cores >= 0)
    ) STRICT
    """,
    """
    CREATE TABLE slot (
        slot TEXT PRIMARY KEY CHECK (slot <> ''),
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        generation INTEGER NOT NULL CHECK (generation >= 1),
        releasing INTEGER NOT NULL CHECK (releasing IN (0, 1)),
        compute TEXT NOT NULL CHECK (compute IN ('hard', 'elastic')),
        maximum_units INTEGER NOT NULL CHECK (maximum_units >= 0),
        maximum_cores INTEGER NOT NULL CHECK (maximum_cores >= 0),
        process INTEGER,
        process_start INTEGER,
        created REAL NOT NULL,
        label TEXT NOT NULL DEFAULT '',
        desired TEXT NOT NULL DEFAULT '',
        CHECK ((process IS NULL) = (process_start IS NULL))
    ) STRICT
    """,
    """
    CREATE TABLE slice (
        slot TEXT NOT NULL REFERENCES slot (slot) ON DELETE CASCADE,
        card TEXT NOT NULL REFERENCES card (uuid),
        position INTEGER NOT NULL CHECK (position >= 0),
        requested_units INTEGER NOT NULL CHECK (requested_units >= 0),
        requested_cores INTEGER NOT NULL CHECK (requested_cores >= 0),
        target_units INTEGER NOT NULL CHECK (target_units >= 0),
        target_cores INTEGER NOT NULL CHECK (target_cores >= 0),
        held_units INTEGER NOT NULL CHECK (held_units >= target_units),
        held_cores INTEGER NOT NULL CHECK (held_cores >= target_cores),
        PRIMARY KEY (slot, card),
        UNIQUE (slot, position)
    ) STRICT
    """,
)

CHANGES: Final = {
    2: ("ALTER TABLE slot ADD COLUMN label TEXT NOT NULL DEFAULT ''",),
    3: ("ALTER TABLE slot ADD COLUMN desired TEXT NOT NULL DEFAULT ''",),
}
"""What brings a file to each schema from the one before it."""

_PUT_CARD: Final = """
    INSERT INTO card VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (uuid) DO UPDATE SET position = excluded.position, name = excluded.name,
        units = excluded.units, cores = excluded.cores, healthy = excluded.healthy,
        present = excluded.present, over_units = excluded.over_units, over_cores = excluded.over_cores
"""
_PUT_SLOT: Final = """
    INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (slot) DO UPDATE SET generation = excluded.generation, releasing = excluded.releasing,
        maximum_units = excluded.maximum_units, maximum_cores = excluded.maximum_cores,
        process = excluded.process, process_start = excluded.process_start, label = excluded.label,
        desired = excluded.desired
"""
_PUT_SLICE: Final = """
    INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (slot, card) DO UPDATE SET target_units = excluded.target_units,
        target_cores = excluded.target_cores, held_units = excluded.held_units,
        held_cores = excluded.held_cores
"""


def read(connection: sqlite3.Connection) -> Book:
    """Read the whole book; within a transaction of the caller's."""
    cards = {
        row[0]: CardEntry(
            CardCapacity(row[0], row[1], row[2], row[3], row[4], bool(row[5])),
            present=bool(row[6]),
            over=Share(row[7], row[8]),
        )
        for row in connection.execute("SELECT * FROM card ORDER BY position, uuid")
    }
    slices: dict[str, list[SliceRecord]] = {}
    for row in connection.execute("SELECT * FROM slice ORDER BY slot, position"):
        slices.setdefault(row[0], []).append(
            SliceRecord(row[1], Share(row[3], row[4]), Share(row[5], row[6]), Share(row[7], row[8]))
        )
    slots = {
        row[0]: SlotRecord(
            slot=row[0],
            owner=row[1],
            name=row[2],
            generation=row[3],
            releasing=bool(row[4]),
            compute=row[5],
            maximum=Share(row[6], row[7]),
            slices=tuple(slices.get(row[0], ())),
            process=row[8],
            process_start=row[9],
            created=row[10],
            label=row[11],
            desired=row[12],
        )
        for row in connection.execute("SELECT * FROM slot ORDER BY created, slot")
    }
    return Book(cards, slots)


def write(connection: sqlite3.Connection, before: Book, after: Book) -> None:
    """Write what differs between two books; within a transaction of the caller's."""
    for uuid, entry in after.cards.items():
        if before.cards.get(uuid) != entry:
            card = entry.capacity
            connection.execute(
                _PUT_CARD,
                (
                    *(uuid, card.index, card.name, card.units, card.cores, card.healthy),
                    *(entry.present, entry.over.units, entry.over.cores),
                ),
            )
    for name in before.slots.keys() - after.slots.keys():
        connection.execute("DELETE FROM slot WHERE slot = ?", (name,))
    for name, slot in after.slots.items():
        if before.slots.get(name) != slot:
            _write_slot(connection, slot)
    for uuid in before.cards.keys() - after.cards.keys():
        connection.execute("DELETE FROM card WHERE uuid = ?", (uuid,))


def _write_slot(connection: sqlite3.Connection, slot: SlotRecord) -> None:
    connection.execute(
        _PUT_SLOT,
        (
            *(slot.slot, slot.owner, slot.name, slot.generation, slot.releasing, slot.compute),
            *(slot.maximum.units, slot.maximum.cores, slot.process, slot.process_start, slot.created),
            *(slot.label, slot.desired),
        ),
    )
    connection.executemany(
        _PUT_SLICE,
        (
            (
                *(slot.slot, part.card, position, part.requested.units, part.requested.cores),
                *(part.target.units, part.target.cores, part.held.units, part.held.cores),
            )
            for position, part in enumerate(slot.slices)
        ),
    )
