"""From cost to step."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from gaia_plugin.placement.cluster.steps import steps


@pytest.mark.parametrize(
    ("cost", "step"),
    [(0, 0), (1, 1), (39_000, 1), (41_000, 2), (1_000_000, 24), (4_000_000, 49), (9_000_000, 50)],
)
def test_a_step_is_about_four_hundredths_of_a_card(cost: int, step: int) -> None:
    assert steps(np.array([cost]))[0] == step


def test_steps_are_whole_points_of_a_logistic_score() -> None:
    cost = np.arange(0, 6_000_000, 9_973)
    expected = [50 - int(100 / (1 + exp(c / 1e6))) for c in cost.tolist()]
    assert steps(cost).tolist() == expected
