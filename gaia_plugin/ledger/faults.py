"""What can go wrong with the ledger's file, and what people are told of it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gaia_plugin.errors import Code, Fatal, Refusal


class LedgerBroken(Exception):
    """A change would have broken an invariant; it was not made. Always a fault of Gaia's."""


class LedgerUnwritable(Refusal):
    """The file takes nothing now, as on a full disk; nothing was changed. No answer to what was asked."""


class LedgerDamaged(Fatal):
    """The file cannot be read as a sound book; nothing was changed in it."""


@contextlib.contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn faults of the file into what people are told."""
    try:
        yield
    except sqlite3.OperationalError as fault:
        raise LedgerUnwritable(
            Code.UNAVAILABLE, f"The ledger {path} cannot be written now ({fault}); nothing was changed."
        ) from fault
    except sqlite3.IntegrityError as fault:
        raise LedgerBroken(str(fault)) from fault
    except sqlite3.DatabaseError as fault:
        raise damaged(path, str(fault)) from fault


def damaged(path: Path, reason: str) -> LedgerDamaged:
    """Return what people are told of a file that cannot be read."""
    return LedgerDamaged(
        f"The ledger {path} is damaged ({reason}). End the programs that use slots of this machine, "
        f"move the file and its -wal and -shm away, and start again."
    )
