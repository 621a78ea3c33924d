"""The file under the ledger: durable, private, and honest about damage."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.ledger import CardCapacity, Ledger, LedgerBroken, SlotRecord, rules
from gaia_plugin.ledger.book import Book, violations
from gaia_plugin.placement.model import Slice
from gaia_plugin.shares import Share

A = "GPU-a"


def fill(path: Path) -> SlotRecord:
    with Ledger(path) as ledger:
        ledger.set_cards([CardCapacity(A, 0, "sim", 64)])
        return ledger.grant(
            "alice", "alice", "lab", lambda _: [Slice(A, Share(8, 10))], Share(64, 100), "elastic", 5, 50
        )


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    before = fill(tmp_path / "l")
    with Ledger(tmp_path / "l") as ledger:
        assert ledger.slots() == [before]


def test_it_is_durable_and_private(tmp_path: Path) -> None:
    fill(tmp_path / "l")
    with Ledger(tmp_path / "l") as ledger:
        assert ledger._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        ledger.release("alice")
        for file in tmp_path.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


class Watched(Ledger):
    """Notes how long each commit waits for the disk."""

    waits: list[str]

    def _commit(self) -> None:
        level = self._connection.execute("PRAGMA synchronous").fetchone()[0]
        self.waits.append({1: "NORMAL", 2: "FULL"}[level])
        super()._commit()


def test_a_change_of_size_is_on_the_disk_before_it_is_answered(tmp_path: Path) -> None:
    with Watched(tmp_path / "l", lazy=True) as ledger:
        ledger.waits = []
        ledger.set_cards([CardCapacity(A, 0, "sim", 64)])
        ledger.reserve("n", "n", "lab", lambda _: [Slice(A, Share(8, 10))], Share(64, 100), "hard")
        ledger.commit("n")
        assert set(ledger.waits) == {"NORMAL"}, "no container outlives a power cut"
        ledger.waits = []
        ledger.hold("n", {A: Share(16, 10)})
        ledger.commit("n")
        ledger.resize("n", {A: Share(4, 10)})
        assert ledger.waits == ["FULL"] * 3
        ledger.release("n")
        assert ledger.waits[3:] == ["NORMAL"]


def test_tables_are_strict_and_check(tmp_path: Path) -> None:
    fill(tmp_path / "l")
    for wrong in (
        "UPDATE slice SET held_units = 7",
        "UPDATE slice SET target_units = 'many'",
        "UPDATE slice SET target_units = -1",
        "UPDATE slot SET process = NULL",
        "UPDATE slot SET compute = 'soft'",
        "UPDATE slot SET generation = 0",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            edit(tmp_path / "l", wrong)


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "l"
    fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * (len(whole) - 100))
    with pytest.raises(Unusable, match="damaged"):
        Ledger(path)
    path.write_bytes(b"this is no database at all, but long enough to be looked at" * 20)
    with pytest.raises(Unusable, match="damaged"):
        Ledger(path)


def test_a_book_that_breaks_an_invariant_is_damaged(tmp_path: Path) -> None:
    fill(tmp_path / "l")
    edit(tmp_path / "l", "UPDATE card SET units = 4")
    with pytest.raises(Unusable, match="damaged"):
        Ledger(tmp_path / "l")


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    fill(tmp_path / "l")
    edit(tmp_path / "l", "PRAGMA user_version = 99")
    with pytest.raises(Unusable, match="newer Gaia"):
        Ledger(tmp_path / "l")


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    edit(tmp_path / "l", "CREATE TABLE recipes (name TEXT)")
    before = (tmp_path / "l").read_bytes()
    with pytest.raises(Unusable, match="not a ledger"):
        Ledger(tmp_path / "l")
    assert (tmp_path / "l").read_bytes() == before


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be opened"):
        Ledger(tmp_path / "missing" / "l")
    with pytest.raises(Unusable, match="cannot be opened"):
        Ledger(tmp_path)


def test_a_full_disk_refuses_and_changes_nothing(tmp_path: Path) -> None:
    before = fill(tmp_path / "l")
    with Ledger(tmp_path / "l") as ledger:
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
        more = [CardCapacity(A, 0, "sim", 64), CardCapacity("GPU-b", 1, "x" * 90_000, 1)]
        with pytest.raises(Refusal, match="full") as caught:
            ledger.set_cards(more)
        assert caught.value.code == Code.UNAVAILABLE
        assert ledger.slots() == [before]
        assert [card.uuid for card in ledger.cards()] == [A]


def test_a_broken_rule_is_caught_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fill(tmp_path / "l")

    def careless(book: Book, record: SlotRecord, wanted: dict[str, Share]) -> Book:
        return rules.hold(book, record, {A: Share(65, 1)})

    with Ledger(tmp_path / "l") as ledger:
        monkeypatch.setattr(rules, "aim", careless)
        with pytest.raises(LedgerBroken):
            ledger.resize("alice", {A: Share(9, 10)})
        assert ledger.slots() == [before]


def test_violations_name_each_fault() -> None:
    record = SlotRecord("s", "o", "", 0, True, "hard", Share(1, 1), (), 1, None, 0.0)
    assert len(violations(Book({}, {"s": record}))) == 3


def grow(ledger: Ledger) -> None:
    ledger.resize("p1", {A: Share(56, 10)})


def bind(ledger: Ledger) -> None:
    ledger.grant("p2", "o", "", lambda _: [Slice(A, Share(16, 10))], Share(16, 10), "hard")


def attempt_it(action: Callable[[Ledger], None], ledger: Ledger, refusals: list[Refusal]) -> None:
    try:
        action(ledger)
    except Refusal as refusal:
        refusals.append(refusal)


def test_threads_share_one_ledger(tmp_path: Path) -> None:
    """Grow against concurrent grants: the same free units are never given twice."""
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_cards([CardCapacity(A, 0, "sim", 64)])
        for attempt in range(25):
            ledger.grant("p1", "o", "", lambda _: [Slice(A, Share(32, 10))], Share(64, 100), "hard")
            refusals: list[Refusal] = []

            order = [grow, bind] if attempt % 2 else [bind, grow]
            threads = [threading.Thread(target=attempt_it, args=(act, ledger, refusals)) for act in order]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [refusal.code for refusal in refusals] == [Code.CARD_FULL]
            assert refusals[0].best_memory is not None
            assert sum(slot.held.units for slot in ledger.slots()) <= 64
            for slot in ledger.slots():
                ledger.settle(slot.slot, ledger.release(slot.slot).generation, {A: 0})
                ledger.remove(slot.slot)


def test_a_file_of_the_first_schema_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "l"
    before = fill(path)
    edit(
        path,
        "ALTER TABLE slot DROP COLUMN label",
        "ALTER TABLE slot DROP COLUMN desired",
        "PRAGMA user_version = 1",
    )
    for _ in range(2):
        with Ledger(path) as ledger:
            assert ledger.slots() == [before]
            assert before.label == ""
    with Ledger(path) as ledger:
        ledger.settle("alice", ledger.release("alice").generation, {A: 0})
        ledger.remove("alice")
        made = ledger.grant(
            "u", "u", "main", lambda _: [Slice(A, Share(1, 1))], Share(1, 1), "hard", label="lab/p"
        )
        assert ledger.slots() == [made]
        assert made.label == "lab/p"
