"""Granting, resizing, draining and releasing slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import CardCapacity, Ledger, SlotRecord, split
from gaia_plugin.placement.model import CardState, Slice
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import GIB, MEMORY_UNIT

A, B = "GPU-a", "GPU-b"
WHOLE = Share(94, 100)
CARDS = (CardCapacity(A, 0, "sim", 94), CardCapacity(B, 1, "sim", 94))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite") as made:
        made.set_cards(CARDS)
        yield made


def on(*shares: tuple[str, int, int]) -> Callable[[list[CardState]], list[Slice]]:
    return lambda states: [Slice(card, Share(units, cores)) for card, units, cores in shares]


def grant(ledger: Ledger, slot: str, *shares: tuple[str, int, int], maximum: Share = WHOLE) -> SlotRecord:
    return ledger.grant(slot, slot, "", on(*shares), maximum, "hard")


def refused(code: Code, action: Callable[[], object]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        action()
    assert caught.value.code == code
    assert caught.value.sentence.endswith(".")
    return caught.value


def test_a_grant_is_requested_in_force_and_booked_at_once(ledger: Ledger) -> None:
    record = grant(ledger, "alice", (A, 16, 25))
    assert record.requested == record.target == record.held == Share(16, 25)
    assert (record.generation, record.draining, record.releasing) == (1, False, False)
    assert ledger.free() == {A: Share(78, 75), B: Share(94, 100)}
    assert ledger.slot("alice") == record == ledger.slots()[0]


@pytest.mark.parametrize(
    ("shares", "mode", "code", "word"),
    [
        (((A, 4, 0),), "hard", Code.INVALID_AMOUNT, "1 %"),
        (((A, 4, 0),), "elastic", Code.INVALID_AMOUNT, "1 %"),
        (((A, 4, -5),), "hard", Code.INVALID_AMOUNT, "1 %"),
        (((A, 4, 61),), "hard", Code.CARD_FULL, "60 %"),
        (((A, 4, 61),), "elastic", Code.CARD_FULL, "60 %"),
        (((A, 4, 60), (B, 4, 101)), "elastic", Code.CARD_FULL, "100 %"),
        (((A, 4, 25),), "turbo", Code.INVALID_AMOUNT, "hard"),
        (((A, 4, 25),), "", Code.INVALID_AMOUNT, "elastic"),
        (((A, 4, 25),), "HARD", Code.INVALID_AMOUNT, "elastic"),
    ],
)
def test_compute_that_cannot_be_kept_is_refused_in_words(
    ledger: Ledger, shares: tuple[tuple[str, int, int], ...], mode: str, code: Code, word: str
) -> None:
    grant(ledger, "alice", (A, 16, 40))
    maximum = Share(188, 400)
    refusal = refused(code, lambda: ledger.grant("bob", "bob", "", on(*shares), maximum, mode))
    assert word in refusal.sentence
    assert [record.slot for record in ledger.slots()] == ["alice"]


@pytest.mark.parametrize("cores", [0, -1, 101, 61])
def test_a_resize_to_compute_that_cannot_be_kept_is_refused(ledger: Ledger, cores: int) -> None:
    grant(ledger, "alice", (A, 16, 40))
    grant(ledger, "bob", (A, 16, 20), maximum=Share(94, 100))
    with pytest.raises(Refusal):
        ledger.resize("bob", {A: Share(16, cores)})
    assert ledger.slot("bob").target.cores == 20


def test_the_choice_sees_what_is_free(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    seen: list[CardState] = []

    def choose(states: list[CardState]) -> list[Slice]:
        seen.extend(states)
        return [Slice(B, Share(1, 1))]

    ledger.grant("bob", "bob", "", choose, Share(1, 1), "elastic")
    assert [(s.uuid, s.free, s.capacity) for s in seen] == [
        (A, Share(78, 75), Share(94, 100)),
        (B, Share(94, 100), Share(94, 100)),
    ]


def test_a_choice_that_refuses_leaves_no_trace(ledger: Ledger) -> None:
    def choose(states: list[CardState]) -> list[Slice]:
        raise Refusal(Code.CARD_FULL, "Nothing fits.")

    refused(Code.CARD_FULL, lambda: ledger.grant("alice", "alice", "", choose, Share(1, 1), "hard"))
    assert ledger.slots() == []


@pytest.mark.parametrize(
    ("code", "shares", "maximum"),
    [
        (Code.INVALID_AMOUNT, (), Share(94, 100)),
        (Code.INVALID_AMOUNT, ((A, 1, 1), (A, 1, 1)), Share(94, 100)),
        (Code.INVALID_AMOUNT, ((A, 0, 1),), Share(94, 100)),
        (Code.INVALID_AMOUNT, ((A, 1, 0),), Share(94, 100)),
        (Code.INVALID_AMOUNT, ((A, -4, 1),), Share(94, 100)),
        (Code.INVALID_AMOUNT, ((A, 1, 1),), Share(1 << 70, 100)),
        (Code.NO_SUCH_CARD, (("GPU-x", 1, 1),), Share(94, 100)),
        (Code.OVER_MAXIMUM, ((A, 17, 1),), Share(16, 100)),
        (Code.CARD_FULL, ((A, 95, 1),), Share(200, 200)),
        (Code.CARD_FULL, ((A, 1, 101),), Share(200, 200)),
    ],
)
def test_bad_grants_are_refused_and_change_nothing(
    ledger: Ledger, code: Code, shares: tuple[tuple[str, int, int], ...], maximum: Share
) -> None:
    refused(code, lambda: grant(ledger, "alice", *shares, maximum=maximum))
    assert ledger.slots() == []
    assert ledger.free() == {A: Share(94, 100), B: Share(94, 100)}


def test_a_name_is_given_once(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 1, 1))
    refused(Code.SLOT_EXISTS, lambda: grant(ledger, "alice", (B, 1, 1)))


def test_a_slot_nobody_knows_is_refused_everywhere(ledger: Ledger) -> None:
    for action in (
        lambda: ledger.slot("x"),
        lambda: ledger.resize("x", {A: Share(1, 1)}),
        lambda: ledger.hold("x", {A: Share(1, 1)}),
        lambda: ledger.commit("x"),
        lambda: ledger.undo("x"),
        lambda: ledger.settle("x", 1, {}),
        lambda: ledger.raise_held("x", A, 1),
        lambda: ledger.release("x"),
        lambda: ledger.remove("x"),
        lambda: ledger.own("x", 1, 1),
        lambda: ledger.could_reach("x"),
    ):
        refused(Code.NO_SUCH_SLOT, action)


def test_growing_takes_effect_at_once(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    record = ledger.resize("alice", {A: Share(32, 50)})
    assert record.target == record.held == Share(32, 50)
    assert record.generation == 2
    assert record.requested == Share(16, 25)


def test_the_same_again_is_no_change(ledger: Ledger) -> None:
    before = grant(ledger, "alice", (A, 16, 25))
    assert ledger.resize("alice", {A: Share(16, 25)}) == before


def test_a_refusal_names_what_is_free_and_the_total_that_works(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 32, 25))
    grant(ledger, "bob", (A, 48, 25))
    refusal = refused(Code.CARD_FULL, lambda: ledger.resize("alice", {A: Share(64, 25)}))
    assert refusal.sentence == "Only 3.5 GiB are free on this card; you can have up to 11.5 GiB in total."
    assert (refusal.best_memory, refusal.best_cores) == (11 * GIB + GIB // 2, 25)
    refusal = refused(Code.CARD_FULL, lambda: ledger.resize("alice", {A: Share(32, 90)}))
    assert refusal.sentence == "Only 50 % of this card's time is free; you can have up to 75 % in total."
    refusal = refused(Code.CARD_FULL, lambda: ledger.resize("alice", {A: Share(64, 90)}))
    assert refusal.sentence == (
        "Only 3.5 GiB and 50 % are free on this card; you can have up to 11.5 GiB and 75 % in total."
    )
    assert refusal.best_memory is not None
    assert refusal.best_cores is not None
    assert ledger.slot("alice").target == Share(32, 25)
    best = Share(refusal.best_memory // MEMORY_UNIT, refusal.best_cores)
    assert ledger.resize("alice", {A: best}).target == best
    refusal = refused(Code.CARD_FULL, lambda: ledger.resize("bob", {A: Share(49, 25)}))
    assert refusal.sentence == "No memory is free on this card; you can have up to 12 GiB in total."


def test_over_the_maximum_names_maximum_and_room(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25), maximum=Share(32, 50))
    refusal = refused(Code.OVER_MAXIMUM, lambda: ledger.resize("alice", {A: Share(33, 25)}))
    assert refusal.sentence == "This slot may have at most 8 GiB in total."
    assert (refusal.best_memory, refusal.best_cores) == (8 * GIB, 25)
    grant(ledger, "bob", (A, 70, 25))
    refusal = refused(Code.OVER_MAXIMUM, lambda: ledger.resize("alice", {A: Share(33, 25)}))
    assert refusal.sentence == "This slot may have at most 8 GiB in total; its card has room for 6 GiB now."
    assert refusal.best_memory == 6 * GIB


def test_a_slot_of_two_cards_names_the_card_that_is_short(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 10, 10), (B, 10, 10), maximum=Share(188, 200))
    grant(ledger, "bob", (B, 70, 10))
    assert ledger.could_reach("alice") == Share(48, 180)
    refusal = refused(Code.CARD_FULL, lambda: ledger.resize("alice", {A: Share(30, 10), B: Share(30, 10)}))
    assert refusal.sentence == "Only 3.5 GiB are free on card 1; you can have up to 12 GiB in total."
    assert refusal.best_memory == 12 * GIB
    # one card alone may go further than an even split
    assert ledger.resize("alice", {A: Share(80, 10)}).target == Share(90, 20)


def test_a_card_of_another_slot_is_refused(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 10, 10))
    refused(Code.NO_SUCH_CARD, lambda: ledger.resize("alice", {B: Share(1, 1)}))
    refused(Code.NO_SUCH_CARD, lambda: ledger.raise_held("alice", B, 1))


@pytest.mark.parametrize("share", [Share(0, 1), Share(1, 0), Share(-1, 5), NOTHING])
def test_a_resize_to_nothing_is_refused(ledger: Ledger, share: Share) -> None:
    before = grant(ledger, "alice", (A, 10, 10))
    refused(Code.INVALID_AMOUNT, lambda: ledger.resize("alice", {A: share}))
    assert ledger.slot("alice") == before


def test_a_stale_generation_is_refused(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 10, 10))
    ledger.resize("alice", {A: Share(20, 10)}, generation=1)
    refused(Code.STALE, lambda: ledger.resize("alice", {A: Share(30, 10)}, generation=1))
    refused(Code.STALE, lambda: ledger.settle("alice", 1, {A: 0}))
    assert ledger.slot("alice").target == Share(20, 10)


def test_a_shrink_stays_booked_until_it_settles(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 50))
    record = ledger.resize("alice", {A: Share(8, 20)})
    assert (record.target, record.held, record.draining) == (Share(8, 20), Share(16, 50), True)
    assert ledger.free()[A] == Share(78, 50)
    record = ledger.settle("alice", record.generation, {A: 12})
    assert (record.held, record.draining) == (Share(12, 20), True)
    # use never books anew
    assert ledger.settle("alice", record.generation, {A: 14}).held == Share(12, 20)
    record = ledger.settle("alice", record.generation, {A: 3})
    assert (record.held, record.draining) == (Share(8, 20), False)


def test_memory_that_was_not_measured_stays_booked(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 50), (B, 16, 50))
    record = ledger.resize("alice", {A: Share(8, 20), B: Share(8, 20)})
    record = ledger.settle("alice", record.generation, {B: 0})
    assert [part.held for part in record.slices] == [Share(16, 20), Share(8, 20)]


def test_a_draining_slot_may_grow_back_into_what_it_holds(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 60, 50))
    ledger.resize("alice", {A: Share(10, 50)})
    grant(ledger, "bob", (A, 34, 10))
    assert ledger.could_reach("alice") == Share(60, 90)
    assert ledger.resize("alice", {A: Share(60, 50)}).draining is False


def test_release_is_a_shrink_to_nothing(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    record = ledger.release("alice")
    assert (record.target, record.held, record.releasing, record.generation) == (
        NOTHING,
        Share(16, 25),
        True,
        2,
    )
    assert ledger.release("alice") == record
    assert "4 GiB" in refused(Code.UNAVAILABLE, lambda: ledger.remove("alice")).sentence
    refused(Code.NO_SUCH_SLOT, lambda: ledger.resize("alice", {A: Share(1, 1)}))
    refused(Code.NO_SUCH_SLOT, lambda: ledger.own("alice", 1, 1))
    assert ledger.could_reach("alice") == NOTHING
    ledger.settle("alice", 2, {A: 0})
    ledger.remove("alice")
    assert ledger.slots() == []
    assert ledger.free()[A] == Share(94, 100)


def test_a_slot_belongs_to_a_process(ledger: Ledger) -> None:
    record = ledger.grant("alice", "alice", "", on((A, 1, 1)), Share(1, 1), "hard", 7, 70)
    assert (record.process, record.process_start) == (7, 70)
    ledger.own("alice", 8, 80)
    assert (ledger.slot("alice").process, ledger.slot("alice").process_start) == (8, 80)


def test_totals_are_split_evenly_or_refused_with_the_nearest(ledger: Ledger) -> None:
    record = grant(ledger, "alice", (A, 10, 10), (B, 12, 10), maximum=Share(188, 200))
    assert split(record, 30, None) == {A: Share(15, 10), B: Share(15, 10)}
    assert split(record, None, 50) == {A: Share(10, 25), B: Share(12, 25)}
    refusal = refused(Code.INVALID_AMOUNT, lambda: split(record, 31, None))
    assert "7.5 GiB or 8 GiB" in refusal.sentence
    assert refusal.best_memory == 30 * MEMORY_UNIT
    assert (
        "the nearest that can: 2 %." in refused(Code.INVALID_AMOUNT, lambda: split(record, None, 1)).sentence
    )


# -- growing in two steps


def test_a_held_grow_is_booked_before_it_is_in_force(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    record = ledger.hold("alice", {A: Share(32, 50)}, 1)
    assert (record.target, record.held, record.generation) == (Share(16, 25), Share(32, 50), 1)
    record = ledger.commit("alice")
    assert (record.target, record.held, record.generation) == (Share(32, 50), Share(32, 50), 2)


def test_a_grow_that_is_undone_falls_by_settling(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    ledger.hold("alice", {A: Share(32, 50)})
    assert ledger.undo("alice").held == Share(32, 50)
    assert ledger.settle("alice", 1, {A: 5}).held == Share(16, 25)
    refused(Code.STALE, lambda: ledger.commit("alice"))


def test_settling_leaves_a_grow_under_way_its_room(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    ledger.hold("alice", {A: Share(32, 50)})
    assert ledger.settle("alice", 1, {A: 0}).held == Share(32, 50)
    assert ledger.commit("alice").target == Share(32, 50)


def test_one_grow_at_a_time(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    ledger.hold("alice", {A: Share(32, 50)})
    refused(Code.UNAVAILABLE, lambda: ledger.hold("alice", {A: Share(33, 50)}))
    ledger.undo("alice")
    ledger.hold("alice", {A: Share(33, 50)})


@pytest.mark.parametrize("change", ["resize", "release"])
def test_a_change_in_between_makes_the_grow_stale(ledger: Ledger, change: str) -> None:
    grant(ledger, "alice", (A, 16, 25))
    ledger.hold("alice", {A: Share(32, 50)})
    if change == "resize":
        ledger.resize("alice", {A: Share(8, 25)})
    else:
        ledger.release("alice")
    refused(Code.STALE, lambda: ledger.commit("alice"))
    assert ledger.slot("alice").target.units in (8, 0)


def test_after_a_restart_a_grow_under_way_looks_like_draining(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_cards(CARDS)
        grant(ledger, "alice", (A, 16, 25))
        ledger.hold("alice", {A: Share(32, 50)})
    with Ledger(tmp_path / "l") as ledger:
        assert ledger.slot("alice").draining
        refused(Code.STALE, lambda: ledger.commit("alice"))
        assert ledger.settle("alice", 1, {A: 0}).held == Share(16, 25)


# -- cards that change, programs that lie


def test_use_above_the_booking_is_booked_even_past_the_card(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 50, 50))
    grant(ledger, "bob", (A, 40, 40))
    record = ledger.raise_held("alice", A, 60)
    assert (record.target.units, record.held.units, record.generation) == (50, 60, 1)
    assert ledger.overbooked() == {A: Share(6, 0)}
    assert ledger.free()[A] == Share(0, 10)
    refused(Code.CARD_FULL, lambda: ledger.resize("bob", {A: Share(41, 40)}))
    refused(Code.CARD_FULL, lambda: ledger.resize("alice", {A: Share(51, 50)}))
    refused(Code.CARD_FULL, lambda: grant(ledger, "carol", (A, 1, 1)))
    assert ledger.resize("bob", {A: Share(40, 45)}).target == Share(40, 45)
    assert ledger.raise_held("alice", A, 55).held.units == 60
    ledger.settle("alice", 1, {A: 52})
    assert ledger.overbooked() == {}
    assert ledger.free()[A].units == 2


@pytest.mark.parametrize("cards", [(CARDS[1],), (CardCapacity(A, 0, "sim", 94, healthy=False), CARDS[1])])
def test_a_card_that_fails_or_goes_keeps_its_slots_and_gets_nothing(
    ledger: Ledger, cards: tuple[CardCapacity, ...]
) -> None:
    before = grant(ledger, "alice", (A, 16, 25))
    ledger.resize("alice", {A: Share(8, 25)})
    ledger.set_cards(cards)
    assert ledger.slot("alice").requested == before.requested
    assert [(card.uuid, card.healthy) for card in ledger.cards()] == [(A, False), (B, True)]
    assert [state.healthy for state in ledger.states()] == [False, True]
    refused(Code.UNAVAILABLE, lambda: ledger.resize("alice", {A: Share(10, 25)}))
    refused(Code.UNAVAILABLE, lambda: grant(ledger, "bob", (A, 1, 1)))
    assert ledger.could_reach("alice") == Share(8, 25)
    record = ledger.resize("alice", {A: Share(4, 20)})
    ledger.release("alice")
    ledger.settle("alice", record.generation + 1, {A: 0})
    ledger.remove("alice")
    assert {card.uuid for card in ledger.cards()} == {card.uuid for card in cards}


def test_a_card_that_comes_back_is_usable_again(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 16, 25))
    ledger.set_cards(CARDS[1:])
    ledger.set_cards(CARDS)
    assert ledger.resize("alice", {A: Share(17, 25)}).target == Share(17, 25)


def test_a_card_that_became_smaller_is_overbooked_not_a_fault(ledger: Ledger) -> None:
    grant(ledger, "alice", (A, 90, 25))
    ledger.set_cards([CardCapacity(A, 0, "sim", 80), CARDS[1]])
    assert ledger.overbooked() == {A: Share(10, 0)}
    record = ledger.resize("alice", {A: Share(70, 25)})
    ledger.settle("alice", record.generation, {A: 0})
    assert ledger.overbooked() == {}


def test_cards_must_be_distinct_and_sane(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="same UUID"):
        ledger.set_cards([CARDS[0], CARDS[0]])
    with pytest.raises(ValueError, match="range"):
        ledger.set_cards([CardCapacity(A, 0, "sim", -1)])
    assert len(ledger.cards()) == 2
