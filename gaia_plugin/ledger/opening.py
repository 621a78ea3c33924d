"""The ledger's file: made, identified, brought up to date and looked through before it is used."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from gaia_plugin.errors import Unusable
from gaia_plugin.ledger import schema
from gaia_plugin.ledger.book import violations
from gaia_plugin.ledger.faults import damaged


def open_file(path: Path) -> sqlite3.Connection:
    """Return a connection to the ledger at `path`, made if it is not there.

    Raises:
        Unusable: the file is damaged, foreign, of a newer Gaia, or cannot be opened.
    """
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
