"""Names that never recur: drawn durably, bound once, found again, and no fault of the file ever raised."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.ledger.allocations import Allocation, Allocations, nonce_of

MEMORY = "gaia.io/vgpu-memory"
CORES = "gaia.io/vgpu-cores"
IDS = frozenset({"mem-00001", "mem-00000"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "allocations.sqlite"


def again(book: Allocations) -> Allocations:
    """Another process on the same file, after the first was dropped as SIGKILL would."""
    book.close()
    return Allocations(book.path)


def plain(rows: list[Allocation]) -> list[tuple[str, str, str]]:
    return [(row.name, row.uid, row.container) for row in rows]


def test_the_same_ids_get_a_name_that_never_was(path: Path) -> None:
    book = Allocations(path)
    names = [book.draw(MEMORY, IDS).name for _ in range(500)]
    assert len(set(names)) == 500
    assert len({name[:16] for name in names}) == 1
    assert names[0][:16] != book.draw(CORES, IDS).name[:16]
    book.close()


def test_ids_find_their_allocations_newest_first_in_any_order(path: Path) -> None:
    book = Allocations(path)
    first, second = book.draw(MEMORY, IDS), book.draw(MEMORY, IDS)
    book.draw(MEMORY, frozenset({"mem-00000"}))
    assert [row.nonce for row in book.by_ids(MEMORY, ["mem-00000", "mem-00001"])] == [
        second.nonce,
        first.nonce,
    ]
    assert book.by_ids(CORES, IDS) == []
    book.close()


def test_everything_survives_a_kill(path: Path) -> None:
    book = Allocations(path)
    first, second = book.draw(MEMORY, IDS), book.draw(CORES, frozenset({"core-000"}))
    book.bind(first.nonce, "uid-a", "main")
    before = plain(book.all())
    book = again(book)
    assert book.recovered
    assert plain(book.all()) == before
    assert book.by_ids(CORES, second.ids)[0].number > book.by_ids(MEMORY, IDS)[0].number
    assert book.draw(MEMORY, IDS).number == 3
    book.close()


def test_an_owner_is_for_ever(path: Path) -> None:
    book = Allocations(path)
    row = book.draw(MEMORY, IDS)
    assert not row.bound
    bound = book.bind(row.nonce, "uid-a", "main")
    assert bound is not None
    assert bound.bound
    assert book.bind(row.nonce, "uid-b", "main") == bound
    book = again(book)
    assert book.of("uid-a")[0].container == "main"
    book.close()


def test_forgotten_is_forgotten(path: Path) -> None:
    book = Allocations(path)
    first, second = book.draw(MEMORY, IDS), book.draw(MEMORY, IDS)
    book.bind(first.nonce, "uid-a", "main")
    assert book.forget("") == []
    assert book.forget_unbound([first.nonce]) == []
    assert [row.nonce for row in book.forget("uid-a")] == [first.nonce]
    assert [row.nonce for row in book.forget_unbound([second.nonce, "never"])] == [second.nonce]
    book = again(book)
    assert book.all() == []
    assert book.bind(first.nonce, "uid-a", "main") is None
    book.close()


def test_what_the_checkpoint_says_is_adopted_once(path: Path) -> None:
    lost = Allocations(path)
    name = lost.draw(MEMORY, IDS).name
    lost.close()
    path.unlink()
    book = Allocations(path)
    assert not book.recovered
    nonce = nonce_of(name, MEMORY, IDS)
    assert nonce is not None
    book.adopt(MEMORY, IDS, nonce, "uid-a", "main")
    assert book.adopt(MEMORY, IDS, nonce, "uid-b", "main").uid == "uid-a"
    assert plain(book.all()) == [(name, "uid-a", "main")]
    book.close()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "main",
        "0123456789abcdef-0123456789abcdef",
        "x" * 33,
        "gaia.io/slot=0123456789abcdef-0123456789abcdef",
    ],
)
def test_a_foreign_name_has_no_nonce(name: str) -> None:
    assert nonce_of(name, MEMORY, IDS) is None


def test_a_full_disk_fails_no_draw(path: Path) -> None:
    book = Allocations(path)
    kept = book.draw(MEMORY, IDS)
    pages = book._connection.execute("PRAGMA page_count").fetchone()[0]
    book._connection.execute(f"PRAGMA max_page_count = {pages}")
    many = frozenset(f"mem-{number:05d}" for number in range(4488))
    row = book.draw(MEMORY, many)
    assert book.by_ids(MEMORY, many) == [row]
    assert book.bind(row.nonce, "uid-a", "main") is not None
    book._connection.execute("PRAGMA max_page_count = 100000")
    book.tidy()
    book = again(book)
    assert plain(book.all()) == [(row.name, "uid-a", "main"), (kept.name, "", "")]
    book.close()


def test_a_damaged_file_is_moved_aside(path: Path) -> None:
    book = Allocations(path)
    book.draw(MEMORY, IDS)
    book.tidy()
    book.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * (len(whole) - 100))
    book = Allocations(path)
    assert not book.recovered
    assert book.all() == []
    assert book.draw(MEMORY, IDS).number == 1
    assert [each for each in path.parent.iterdir() if ".damaged-" in each.name]
    book.close()


def test_a_foreign_file_is_moved_aside(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.execute("PRAGMA application_id = 7")
    connection.close()
    book = Allocations(path)
    assert book.all() == []
    book.close()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be opened"):
        Allocations(tmp_path / "missing" / "file")
    with pytest.raises(Unusable, match="cannot be opened"):
        Allocations(tmp_path)


def test_it_is_private_and_waits_for_no_disk(path: Path) -> None:
    book = Allocations(path)
    book.draw(MEMORY, IDS)
    assert book._connection.execute("PRAGMA synchronous").fetchone() == (1,)
    assert book._connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    book.tidy()
    book.close()
