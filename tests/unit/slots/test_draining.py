"""What a shrunk slot still uses: order of the measuring, and what cannot be judged."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gaia_plugin.slots.draining import measure_use, use_by_card
from gaia_plugin.units import MEMORY_UNIT as UNIT


def test_the_order_is_fence_sum_and_two_readings() -> None:
    steps: list[str] = []
    figures = iter([{"a": 100 * UNIT}, {"a": 3 * UNIT}])

    def reading() -> Mapping[str, int | None]:
        steps.append("reading")
        return next(figures)

    def pending() -> Mapping[str, int]:
        steps.append("pending")
        return {"a": 1}

    use = measure_use(
        ["a"], fence=lambda: steps.append("fence"), pending=pending, reading=reading, processes=lambda: 1
    )
    assert steps == ["fence", "pending", "reading", "reading"]
    assert use == {"a": 4}  # of the second reading, and a part of a unit is a unit


def test_an_announced_allocation_is_in_the_sum_or_in_the_reading() -> None:
    """A paused process announced under the old limit and goes on at any step; never is it missed."""
    for goes_on in range(4):
        state, step = {"pending": 8 * UNIT, "device": 2 * UNIT}, 0

        def tick(state: dict[str, int] = state, goes_on: int = goes_on) -> None:
            nonlocal step
            if step == goes_on:
                state["device"] += state["pending"]
                state["pending"] = 0
            step += 1

        def pending(state: dict[str, int] = state) -> Mapping[str, int]:
            tick()
            return {"a": state["pending"]}

        def reading(state: dict[str, int] = state) -> Mapping[str, int | None]:
            tick()
            return {"a": state["device"]}

        use = measure_use(["a"], fence=tick, pending=pending, reading=reading, processes=lambda: 1)
        assert use["a"] >= 10


@pytest.mark.parametrize(
    ("announced", "reading", "living", "use"),
    [
        ({"a": 0}, {"a": 0}, 1, {"a": 0}),
        ({}, {"a": 5 * UNIT}, 1, {"a": 5}),
        ({"a": UNIT}, {"a": UNIT + 1}, 0, {"a": 3}),
        # no figure per process: nothing falls before the processes end
        ({"a": 0}, {"a": None}, 1, {}),
        ({"a": 0}, {}, 1, {}),
        ({"a": 0}, {"a": None}, 0, {"a": 0}),
        # a damaged usage page: nothing falls either
        (None, {"a": 5 * UNIT}, 1, {}),
        (None, {"a": 5 * UNIT}, 0, {"a": 5}),
        (None, {"a": None}, 0, {"a": 0}),
    ],
)
def test_what_cannot_be_judged_is_left_out(
    announced: Mapping[str, int] | None, reading: Mapping[str, int | None], living: int, use: dict[str, int]
) -> None:
    assert use_by_card(["a"], announced, reading, living) == use
