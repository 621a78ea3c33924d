"""What others have promised makes room scarce, and nothing else: it is never written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.counted import Holder
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import CardCapacity, Ledger
from gaia_plugin.ledger.book import violations
from gaia_plugin.placement import Request, Slice, place
from gaia_plugin.shares import Share

A, B = "GPU-a", "GPU-b"
WHOLE = Share(64, 100)
OTHER = Holder("other", "main")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.set_cards([CardCapacity(A, 0, "Card", 64), CardCapacity(B, 1, "Card", 64)])
        yield ledger


def made(ledger: Ledger, owner: str, units: int, card: str = A) -> str:
    slot = f"{owner}--main"
    ledger.grant(slot, owner, "main", lambda _: [Slice(card, Share(units, 10))], WHOLE, "hard")
    return slot


def refusal(ledger: Ledger, slot: str, units: int) -> Refusal:
    with pytest.raises(Refusal) as refused:
        ledger.hold(slot, {A: Share(units, 10)})
    return refused.value


def test_everything_that_tells_of_room_agrees(ledger: Ledger) -> None:
    slot = made(ledger, "mine", 32)
    ledger.set_reservations({OTHER: {A: Share(16, 50)}})
    assert ledger.free()[A] == Share(16, 40)
    assert ledger.states()[0].free == Share(16, 40)
    assert ledger.could_reach(slot) == Share(48, 50)
    full = refusal(ledger, slot, 49)
    assert (full.code, full.best_memory) == (Code.CARD_FULL, 48 << 28)
    assert ledger.hold(slot, {A: Share(48, 10)}).held.units == 48


def test_nobody_new_gets_what_is_reserved_but_its_own(ledger: Ledger) -> None:
    ledger.set_reservations({OTHER: {A: Share(64, 100), B: Share(32, 10)}})

    def chosen(owner: str) -> str:
        request = Request(32, 10)
        record = ledger.grant(owner, owner, "main", lambda cards: place(request, cards), WHOLE, "hard")
        return record.slices[0].card

    assert chosen("mine") == B
    with pytest.raises(Refusal):
        chosen("late")
    with pytest.raises(Refusal):
        ledger.grant("x", "x", "main", lambda _: [Slice(A, Share(1, 1))], WHOLE, "hard")
    record = ledger.grant("o", "other", "main", lambda _: [Slice(A, Share(64, 100))], WHOLE, "hard")
    assert record.held == Share(64, 100)
    assert ledger.free() == {A: Share(0, 0), B: Share(32, 90)}, "its reservation counts no more"


def test_what_is_reserved_breaks_no_invariant(ledger: Ledger) -> None:
    slot = made(ledger, "mine", 48)
    ledger.set_reservations({OTHER: {A: Share(64, 100), "GPU-elsewhere": Share(1, 1)}})
    assert ledger.free()[A] == Share(0, 0)
    assert ledger.overbooked() == {}
    assert violations(ledger._read()) == ()
    ledger.resize(slot, {A: Share(16, 10)})
    assert ledger.overbooked() == {}


def test_it_is_forgotten_with_the_process(ledger: Ledger, tmp_path: Path) -> None:
    ledger.set_reservations({OTHER: {A: Share(64, 100)}})
    assert ledger.reservations() == {OTHER: {A: Share(64, 100)}}
    with Ledger(tmp_path / "ledger") as other:
        assert other.free()[A] == WHOLE


def test_the_newest_grow_loses_first(ledger: Ledger) -> None:
    first, second = made(ledger, "first", 8), made(ledger, "second", 8)
    ledger.hold(first, {A: Share(24, 10)})
    ledger.hold(second, {A: Share(40, 10)})
    ledger.set_reservations({OTHER: {A: Share(16, 10)}})
    lost = ledger.crowded_out([first, second])
    assert list(lost) == [second]
    assert (lost[second].code, lost[second].best_memory) == (Code.CARD_FULL, 24 << 28)
    ledger.set_reservations({OTHER: {A: Share(48, 10)}})
    lost = ledger.crowded_out([first, second])
    assert list(lost) == [second, first]
    assert lost[first].best_memory == 8 << 28
    assert "No memory is free" in lost[first].sentence


def test_who_takes_nothing_of_what_is_short_does_not_lose(ledger: Ledger) -> None:
    memory, cores = made(ledger, "memory", 8), made(ledger, "cores", 8)
    ledger.hold(memory, {A: Share(48, 10)})
    ledger.hold(cores, {A: Share(8, 60)})
    ledger.set_reservations({OTHER: {A: Share(16, 10)}})
    assert list(ledger.crowded_out([memory, cores])) == [memory]


def test_who_was_announced_does_not_lose(ledger: Ledger) -> None:
    slot = made(ledger, "mine", 8)
    ledger.hold(slot, {A: Share(64, 10)})
    ledger.set_reservations({OTHER: {A: Share(16, 10)}})
    assert ledger.crowded_out([]) == {}
    assert list(ledger.crowded_out([slot])) == [slot]


def test_a_new_slot_loses_with_what_it_could_have_elsewhere(ledger: Ledger) -> None:
    ledger.reserve("n", "new", "main", lambda _: [Slice(A, Share(60, 10))], WHOLE, "hard")
    ledger.set_reservations({OTHER: {A: Share(16, 10), B: Share(32, 10)}})
    lost = ledger.crowded_out(["n"])
    assert (lost["n"].code, lost["n"].best_memory) == (Code.CARD_FULL, 48 << 28)
    ledger.take_back("n")
    assert ledger.free()[A] == Share(48, 90)


def test_what_a_grow_books_is_not_told_before_it_is_in_force(ledger: Ledger) -> None:
    slot = made(ledger, "mine", 8)

    def told() -> int:
        return ledger.slots_as_told()[0].held.units

    ledger.hold(slot, {A: Share(32, 10)})
    assert (told(), ledger.slot(slot).held.units) == (8, 32)
    ledger.undo(slot)
    assert (told(), ledger.slot(slot).held.units) == (8, 32)
    ledger.settle(slot, ledger.slot(slot).generation, {A: 0})
    assert (told(), ledger.slot(slot).held.units) == (8, 8)
    ledger.hold(slot, {A: Share(32, 10)})
    ledger.commit(slot)
    assert told() == 32
    ledger.resize(slot, {A: Share(8, 10)})
    assert told() == 32, "what is draining is not free"


def test_a_slot_that_drains_keeps_what_it_had_when_a_grow_is_given_up(ledger: Ledger) -> None:
    slot = made(ledger, "mine", 32)
    ledger.resize(slot, {A: Share(8, 10)})
    ledger.hold(slot, {A: Share(48, 10)})
    ledger.undo(slot)
    assert ledger.slots_as_told()[0].held.units == 32
    assert ledger.settle(slot, ledger.slot(slot).generation, {A: 20}).held.units == 20


def test_a_note_of_what_was_desired_stays(ledger: Ledger, tmp_path: Path) -> None:
    slot = made(ledger, "mine", 8)
    before = ledger.slot(slot)
    after = ledger.note_desired(slot, "{}")
    assert (after.desired, after.generation, after.target) == ("{}", before.generation, before.target)
    with Ledger(tmp_path / "ledger") as other:
        assert other.slot(slot).desired == "{}"
    with pytest.raises(Refusal):
        ledger.note_desired("nobody", "")
