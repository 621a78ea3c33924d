"""Which device IDs were answered with which name, and whose that name became.

The kubelet's `Allocate` tells device IDs and never the pod. Each call is answered with a name that
never recurs; this file remembers it until the pod that it went to is gone. Everything here can be
had again from the kubelet's checkpoint, which has the names in it: so a commit need not wait for the
disk, and a full disk is no reason to fail an `Allocate`, which would be final for the pod.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from gaia_plugin.errors import Unusable

log = structlog.get_logger(__name__)

APPLICATION_ID: Final = 0x47414C43  # "GALC"
SCHEMA_VERSION: Final = 1
_NAME: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")
_TABLE: Final = """
    CREATE TABLE allocation (
        number INTEGER PRIMARY KEY,
        nonce TEXT NOT NULL UNIQUE CHECK (nonce <> ''),
        resource TEXT NOT NULL,
        ids TEXT NOT NULL CHECK (ids <> ''),
        uid TEXT NOT NULL,
        container TEXT NOT NULL
    ) STRICT
"""

_PUT: Final = """
    INSERT INTO allocation VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (nonce) DO UPDATE SET uid = excluded.uid, container = excluded.container
"""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One answer to an `Allocate`.

    `uid` and `container` are empty until the pod is known. `number` counts upwards; `seen` is when
    this process first knew of it, in monotonic seconds.
    """

    resource: str
    ids: frozenset[str]
    nonce: str
    uid: str = ""
    container: str = ""
    number: int = 0
    seen: float = 0.0

    @property
    def name(self) -> str:
        """Return the name that was answered: 16 hex digits of the IDs, 16 of the nonce."""
        return f"{digest(self.resource, self.ids)}-{self.nonce}"

    @property
    def bound(self) -> bool:
        """Tell whether it is known whose it is."""
        return bool(self.uid)


def digest(resource: str, ids: Collection[str]) -> str:
    """Return the part of a name that says which IDs of which resource it stands for."""
    return hashlib.sha256("\n".join([resource, *sorted(ids)]).encode()).hexdigest()[:16]


def nonce_of(name: str, resource: str, ids: Collection[str]) -> str | None:
    """Return the nonce in a name, if it is one that could have been answered for these IDs."""
    if _NAME.fullmatch(name) is None or not ids or name[:16] != digest(resource, ids):
        return None
    return name[17:]


class Allocations:
    """The allocations of one node, in the file at `path` and in memory.

    Methods may be called from any thread and none of them raises because of the file: what cannot be
    written is kept in memory and said in the log.

    Args:
        path: made if it is missing; one that is damaged or foreign is moved aside.
        clock: monotonic seconds.

    Raises:
        Unusable: the file cannot be opened; the sentence has the reason.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self._clock = clock
        self._lock = threading.RLock()
        self._rows: dict[str, Allocation] = {}
        self._by_ids: dict[str, list[str]] = {}
        self._unsaved: set[str] = set()
        self._last = 0
        self.recovered = True
        """False when the file was missing or damaged, so that the rows have to be found again."""
        self._connection = self._open()
        for row in self._connection.execute("SELECT * FROM allocation ORDER BY number"):
            number, nonce, resource, ids, uid, container = row
            self._note(
                Allocation(resource, frozenset(ids.split(",")), nonce, uid, container, number, clock())
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    # -- reading

    def all(self) -> list[Allocation]:
        """Return every allocation, newest first."""
        with self._lock:
            return sorted(self._rows.values(), key=lambda row: -row.number)

    def by_ids(self, resource: str, ids: Collection[str]) -> list[Allocation]:
        """Return the allocations of exactly these IDs, newest first."""
        with self._lock:
            found = [self._rows[nonce] for nonce in reversed(self._by_ids.get(digest(resource, ids), []))]
        return [row for row in found if row.resource == resource and row.ids == frozenset(ids)]

    def of(self, uid: str) -> list[Allocation]:
        """Return a pod's allocations, newest first."""
        return [row for row in self.all() if row.uid == uid]

    # -- changing

    def draw(self, resource: str, ids: frozenset[str]) -> Allocation:
        """Note that these IDs were asked for, under a name that never was and never will be again."""
        with self._lock:
            return self._add(resource, ids, secrets.token_hex(8), "", "")

    def adopt(self, resource: str, ids: frozenset[str], nonce: str, uid: str, container: str) -> Allocation:
        """Note an allocation that the kubelet has and this file has lost."""
        with self._lock:
            known = self._rows.get(nonce)
            return known if known is not None else self._add(resource, ids, nonce, uid, container)

    def bind(self, nonce: str, uid: str, container: str) -> Allocation | None:
        """Note whose an allocation is, for ever; return it as it is afterwards (None: forgotten).

        One that is bound already stays as it is, for a running container may have been given by it.
        """
        with self._lock:
            row = self._rows.get(nonce)
            if row is None or (row.uid, row.container) == (uid, container):
                return row
            if row.bound:
                log.error("a name has two owners", name=row.name, has=row.uid, claims=uid)
                return row
            bound = self._rows[nonce] = replace(row, uid=uid, container=container)
            self._save(bound)
            return bound

    def forget(self, uid: str) -> list[Allocation]:
        """Strike out a pod's allocations and return them."""
        with self._lock:
            return self._drop([row for row in self._rows.values() if row.uid == uid]) if uid else []

    def forget_unbound(self, nonces: Iterable[str]) -> list[Allocation]:
        """Strike out those of these allocations that nobody came for."""
        with self._lock:
            rows = [row for nonce in nonces if (row := self._rows.get(nonce)) is not None]
            return self._drop([row for row in rows if not row.bound])

    def tidy(self) -> None:
        """Move what was written into the file proper, on a connection of its own.

        This is the one thing here that waits for the disk; a draw never waits for it.
        """
        with self._lock:
            for nonce in list(self._unsaved):
                self._save(self._rows[nonce])
        try:
            with contextlib.closing(sqlite3.connect(self.path, timeout=1)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as fault:
            log.warning("allocations not tidied", why=str(fault))

    # -- inside

    def _add(self, resource: str, ids: frozenset[str], nonce: str, uid: str, container: str) -> Allocation:
        row = Allocation(resource, ids, nonce, uid, container, self._last + 1, self._clock())
        self._note(row)
        self._save(row)
        return row

    def _note(self, row: Allocation) -> None:
        self._last = row.number
        self._rows[row.nonce] = row
        self._by_ids.setdefault(digest(row.resource, row.ids), []).append(row.nonce)

    def _save(self, row: Allocation) -> None:
        written = (row.number, row.nonce, row.resource, ",".join(sorted(row.ids)), row.uid, row.container)
        try:
            self._connection.execute(
                _PUT,
                written,
            )
        except sqlite3.Error as fault:
            log.warning(
                "allocation not written; the kubelet's checkpoint has it", name=row.name, why=str(fault)
            )
            self._unsaved.add(row.nonce)
        else:
            self._unsaved.discard(row.nonce)

    def _drop(self, rows: list[Allocation]) -> list[Allocation]:
        for row in rows:
            del self._rows[row.nonce]
            self._unsaved.discard(row.nonce)
            key = digest(row.resource, row.ids)
            self._by_ids[key].remove(row.nonce)
            if not self._by_ids[key]:
                del self._by_ids[key]
        try:
            self._connection.executemany(
                "DELETE FROM allocation WHERE nonce = ?", [(row.nonce,) for row in rows]
            )
        except sqlite3.Error as fault:
            # after a restart it comes back, and is struck out again: its owner is gone for good
            log.warning("allocations not struck out", why=str(fault))
        return rows

    def _open(self) -> sqlite3.Connection:
        self.recovered = self.path.exists()
        try:
            return _connect(self.path)
        except (OSError, sqlite3.OperationalError) as fault:
            raise Unusable(f"The file {self.path} cannot be opened: {fault}.") from fault
        except sqlite3.DatabaseError as fault:
            return self._anew(str(fault))

    def _anew(self, why: str) -> sqlite3.Connection:
        self.recovered = False
        aside = self.path.with_name(f"{self.path.name}.damaged-{secrets.token_hex(4)}")
        log.error(
            "allocations are damaged; they are found again in the kubelet's checkpoint",
            moved=str(aside),
            why=why,
        )
        self.path.rename(aside)
        for companion in ("-wal", "-shm"):
            self.path.with_name(self.path.name + companion).unlink(missing_ok=True)
        return _connect(self.path)


def _connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application not in (0, APPLICATION_ID) or version > SCHEMA_VERSION:
        raise sqlite3.DatabaseError("it is not a file of this version of Gaia")
    # NORMAL and no checkpoints on the way: a commit is a write into the page cache. A crash of the
    # agent loses nothing; a power cut may lose the last rows, which the kubelet's checkpoint has.
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    with _transaction(connection):
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'allocation'").fetchone():
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict))


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
