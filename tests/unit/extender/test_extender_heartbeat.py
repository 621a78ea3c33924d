"""Whether an agent is alive does not depend on whose clock is right."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gaia_plugin.extender.heartbeat import Beat, seen
from tests.unit.extender.worlds import NOON

LIMIT = 100.0


@pytest.mark.parametrize(
    ("text", "stale"),
    [
        (NOON.isoformat(), False),
        ((NOON - timedelta(seconds=99)).isoformat(), False),
        ((NOON - timedelta(seconds=101)).isoformat(), True),
        ((NOON + timedelta(days=3)).isoformat(), False),
        ("2026-11-29T12:00:00Z", False),
        ("2026-11-29T12:00:00", False),
        ("", True),
        ("yesterday", True),
        ("9" * 5000, True),
    ],
)
def test_at_first_sight_the_clocks_decide(text: str, stale: bool) -> None:
    assert seen(None, text, 1000.0, NOON).stale(1000.0, LIMIT) is stale


def test_a_heartbeat_that_changes_is_alive_whatever_it_says() -> None:
    beat = seen(None, "2020-01-01T00:00:00Z", 1000.0, NOON)
    assert beat.stale(1000.0, LIMIT)
    beat = seen(beat, "2020-01-01T00:00:30Z", 1030.0, NOON)
    assert not beat.stale(1030.0, LIMIT)


def test_a_heartbeat_that_stays_the_same_becomes_stale_even_from_the_future() -> None:
    beat = seen(None, (NOON + timedelta(days=3)).isoformat(), 1000.0, NOON)
    for second in range(1000, 1100, 10):
        beat = seen(beat, beat.text, float(second), NOON)
    assert not beat.stale(1100.0, LIMIT)
    assert beat.stale(1101.0, LIMIT)


def test_it_is_counted_from_the_change_and_not_from_the_last_look() -> None:
    assert seen(Beat("a", 5.0), "a", 50.0, NOON) == Beat("a", 5.0)
    assert seen(Beat("a", 5.0), "b", 50.0, NOON) == Beat("b", 50.0)
