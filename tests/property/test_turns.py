"""What a slot must be let pay for its share, on a card whose processes take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.agent import turns
from gaia_plugin.agent.turns import Load


@st.composite
def loads(draw: st.DrawFn) -> list[Load]:
    """Slots whose shares add up to at most the card."""
    left, made = 100, []
    while left and len(made) < 8 and (not made or draw(st.booleans())):
        percent = draw(st.integers(1, left))
        left -= percent
        wish = draw(st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
        made.append(Load(percent / 100, wish, draw(st.integers(0, 20))))
    return made


@given(loads())
def test_a_stretch_is_at_least_one_and_at_most_all_the_turns(all_: list[Load]) -> None:
    most = [min(max(1, load.processes), turns.MOST_PROCESSES) for load in all_]
    for found, own in zip(turns.stretches(all_), most, strict=True):
        assert 1 - 1e-9 <= found <= sum(most) / own * 1.05


@given(loads())
def test_who_is_alone_pays_for_its_share_and_no_more(all_: list[Load]) -> None:
    busy = [index for index, load in enumerate(all_) if load.wish]
    if len(busy) == 1:
        assert turns.stretches(all_)[busy[0]] == pytest.approx(1)


@given(loads(), st.integers(0, 7))
def test_a_neighbour_at_work_never_makes_it_shorter(all_: list[Load], one: int) -> None:
    one %= len(all_)
    idle = [Load(x.share, 0.0, x.processes) if i == one else x for i, x in enumerate(all_)]
    for index, (with_, without) in enumerate(zip(turns.stretches(all_), turns.stretches(idle), strict=True)):
        assert index == one or with_ >= without - 1e-6


@pytest.mark.parametrize(
    ("shares", "rates"),
    [
        ((0.3, 0.7), (0.6, 1.0)),  # the larger one always has work; the other's waits for it each time
        ((0.3, 0.6), (0.5, 0.8)),
        ((0.5, 0.5), (1.0, 1.0)),
        ((0.25, 0.25), (0.29, 0.29)),
        ((1 / 3, 1 / 3, 1 / 3), (0.93, 0.93, 0.93)),  # where more hardly changes anything
    ],
)
def test_two_and_three_that_always_have_work(shares: tuple[float, ...], rates: tuple[float, ...]) -> None:
    found = turns.stretches([Load(share, 1.0) for share in shares])
    for share, stretch, rate in zip(shares, found, rates, strict=True):
        assert share * stretch == pytest.approx(rate, abs=0.07)


def test_four_processes_have_four_turns() -> None:
    many, one = turns.stretches([Load(0.7, 1.0, 4), Load(0.3, 1.0, 1)])
    assert 0.3 * one >= 0.95  # the one always has work and gets the rest
    assert 0.7 * many == pytest.approx(0.875, abs=0.03)


@given(loads(), st.integers(0, 7))
def test_a_cautious_slot_is_never_stretched_more(all_: list[Load], one: int) -> None:
    one %= len(all_)
    careful = [replace(load, cautious=index == one) for index, load in enumerate(all_)]
    before, after = turns.stretches(all_), turns.stretches(careful)
    assert 1 - 1e-9 <= after[one] <= before[one] + 1e-6


@pytest.mark.parametrize(
    ("shares", "most"),
    [
        ((0.3, 0.4), (0.32, 0.41)),  # both fit beside each other: nothing need be paid for others' kernels
        ((0.3, 0.6), (0.36, 0.61)),
        ((0.25, 0.25), (0.26, 0.26)),
        ((0.1, 0.1, 0.1), (0.11, 0.11, 0.11)),
    ],
)
def test_cautious_slots_that_keep_out_of_each_others_way_get_hardly_more(
    shares: tuple[float, ...], most: tuple[float, ...]
) -> None:
    found = turns.stretches([Load(share, 1.0, cautious=True) for share in shares])
    for share, stretch, bound in zip(shares, found, most, strict=True):
        assert share <= share * stretch <= bound


def test_a_cautious_slot_beside_one_that_always_has_work_waits_for_most_of_its_turns() -> None:
    hard, _ = turns.stretches([Load(0.3, 1.0, cautious=True), Load(0.7, 1.0)])
    assert 0.3 * hard == pytest.approx(0.48, abs=0.02)
