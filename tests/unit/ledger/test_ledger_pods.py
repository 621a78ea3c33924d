"""Slots that begin as a grow from nothing, and slots found again when the ledger was lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import CardCapacity, Ledger, SliceRecord, SlotRecord
from gaia_plugin.placement.model import CardState, Slice
from gaia_plugin.shares import NOTHING, Share

A, B = "GPU-a", "GPU-b"
SMALL = Share(16, 25)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_cards([CardCapacity(A, 0, "sim", 64)])
        yield ledger


def on_a(_: list[CardState]) -> list[Slice]:
    return [Slice(A, SMALL)]


def reserve(ledger: Ledger, slot: str = "s") -> SlotRecord:
    return ledger.reserve(slot, "uid", "main", on_a, Share(64, 100), "hard", label="lab/pod")


def running(card: str = A, units: int = 48) -> SlotRecord:
    share = Share(units, 50)
    part = SliceRecord(card, share, share, share)
    return SlotRecord("lost", "uid", "main", 3, False, "hard", share, (part,), None, None, 5.0)


def test_a_reserved_slot_is_booked_and_not_in_force(ledger: Ledger) -> None:
    record = reserve(ledger)
    assert (record.requested, record.held, record.target) == (SMALL, SMALL, NOTHING)
    assert record.reserved
    assert ledger.free() == {A: Share(48, 75)}
    record = ledger.commit("s")
    assert (record.target, record.generation, record.reserved) == (SMALL, 2, False)
    assert not record.draining


def test_what_a_reservation_still_needs_does_not_fall(ledger: Ledger) -> None:
    record = reserve(ledger)
    assert ledger.settle("s", record.generation, {A: 0}).held == SMALL
    assert ledger.commit("s").target == SMALL


def test_a_reservation_that_was_killed_falls_by_itself(tmp_path: Path, ledger: Ledger) -> None:
    reserve(ledger)
    ledger.close()
    with Ledger(tmp_path / "l") as again:
        record = again.slot("s")
        assert record.reserved
        with pytest.raises(Refusal):
            again.commit("s")
        again.take_back("s")
        assert again.slots() == []
        assert again.free() == {A: Share(64, 100)}


def test_only_what_was_never_in_force_is_taken_back(ledger: Ledger) -> None:
    reserve(ledger)
    ledger.commit("s")
    with pytest.raises(Refusal, match="in force"):
        ledger.take_back("s")
    ledger.release("s")
    with pytest.raises(Refusal, match="in force"):
        ledger.take_back("s")


def test_a_reservation_is_refused_like_a_grant(ledger: Ledger) -> None:
    ledger.reserve("big", "uid", "main", lambda _: [Slice(A, Share(60, 90))], Share(64, 100), "hard")
    with pytest.raises(Refusal) as caught:
        reserve(ledger)
    assert caught.value.code is Code.CARD_FULL
    with pytest.raises(Refusal) as caught:
        reserve(ledger, "big")
    assert caught.value.code is Code.SLOT_EXISTS


def test_a_running_slot_is_booked_even_past_the_card(ledger: Ledger) -> None:
    ledger.reserve("s", "u", "main", lambda _: [Slice(A, Share(32, 60))], Share(64, 100), "hard")
    assert ledger.adopt(running()) == running()
    assert ledger.free() == {A: NOTHING}
    assert ledger.overbooked() == {A: Share(16, 10)}
    with pytest.raises(Refusal):
        ledger.adopt(running())
    with pytest.raises(Refusal):
        reserve(ledger, "other")


def test_a_running_slot_of_a_card_that_left_is_kept(tmp_path: Path, ledger: Ledger) -> None:
    ledger.adopt(running(B))
    ledger.close()
    with Ledger(tmp_path / "l") as again:
        assert again.slots() == [running(B)]
        assert {card.uuid: card.healthy for card in again.cards()} == {A: True, B: False}
        again.set_cards([CardCapacity(A, 0, "sim", 64), CardCapacity(B, 1, "sim", 64)])
        assert again.free()[B] == Share(16, 50)
        assert again.overbooked() == {}
        again.settle("lost", again.release("lost").generation, {B: 0})
        again.remove("lost")
        assert again.slots() == []


def test_what_an_adopted_slot_lacks_is_completed(tmp_path: Path, ledger: Ledger) -> None:
    ledger.adopt(running())
    amended = ledger.amend("lost", "lab/pod", Share(64, 10))
    assert amended == replace(running(), label="lab/pod", maximum=Share(64, 50))
    ledger.close()
    with Ledger(tmp_path / "l") as again:
        assert again.slots() == [amended]


def test_what_is_being_made_cannot_be_resized(ledger: Ledger) -> None:
    reserve(ledger)
    for change in (ledger.resize, ledger.hold):
        with pytest.raises(Refusal) as refused:
            change("s", {A: Share(8, 10)})
        assert refused.value.code is Code.UNAVAILABLE
    assert ledger.commit("s").target == SMALL
