"""What shares cost, and what a gap is worth."""

from __future__ import annotations

import numpy as np
import pytest

from gaia_plugin.placement.cluster.packing import Size, filling, prices

CARD = (100, 100)


@pytest.mark.parametrize(
    ("demand", "expected"),
    [
        pytest.param({}, {}, id="nothing asked for"),
        pytest.param({(50, 50): 3}, {(50, 50): 1 / 2}, id="halves"),
        pytest.param({(33, 33): 3}, {(33, 33): 1 / 3}, id="thirds"),
        pytest.param({(51, 51): 3}, {(51, 51): 1}, id="no two on a card"),
        pytest.param({(81, 81): 9, (19, 19): 2}, {(81, 81): 1, (19, 19): 0}, id="the small ride in the gaps"),
        pytest.param(
            {(60, 60): 1, (40, 40): 9}, {(60, 60): 1 / 2, (40, 40): 1 / 2}, id="the rarer is the filler"
        ),
        pytest.param({(10, 50): 1}, {(10, 50): 1 / 2}, id="compute binds"),
        pytest.param({(50, 10): 1}, {(50, 10): 1 / 2}, id="memory binds"),
        pytest.param({(20, 100): 1}, {(20, 100): 1}, id="all of one is all of the card"),
        pytest.param(
            {(80, 20): 9, (20, 80): 5},
            {(80, 20): 1, (20, 80): 0},
            id="opposites share cards; the commoner pays",
        ),
    ],
)
def test_a_share_costs_the_part_of_a_card_that_it_keeps_from_others(
    demand: dict[Size, int], expected: dict[Size, float]
) -> None:
    assert prices(demand, CARD) == pytest.approx(expected, abs=1e-6)


def test_amounts_are_counted_in_units_of_the_card() -> None:
    assert prices({(24, 25): 1}, (94, 100)) == pytest.approx({(24, 25): 1 / 3})
    assert prices({(23, 25): 1}, (94, 100)) == pytest.approx({(23, 25): 1 / 4})


def test_a_large_card_is_looked_at_in_coarser_steps_and_never_overfilled() -> None:
    # 160 of 318 units: no two fit, and three steps of 4 units must not make it look as if they did.
    assert prices({(160, 50): 1, (107, 20): 1}, (318, 100))[160, 50] == pytest.approx(1.0)


def test_a_gap_is_worth_the_dearest_that_fits() -> None:
    table = filling({(50, 20): 0.5, (20, 50): 0.4}, CARD)
    assert table.shape == (101, 101)
    assert [table[49, 99], table[50, 20], table[19, 99], table[20, 50]] == pytest.approx(
        [0.4 * 1, 0.5, 0, 0.4]
    )
    assert table[70, 70] == pytest.approx(0.9)
    assert table[100, 100] == pytest.approx(1.0)  # two of the first
    assert (np.diff(table, axis=0) >= 0).all()
    assert (np.diff(table, axis=1) >= 0).all()


def test_without_prices_nothing_is_worth_more_than_its_amount() -> None:
    assert not filling({}, CARD).any()
    assert not filling({(10, 10): 0.0}, CARD).any()
