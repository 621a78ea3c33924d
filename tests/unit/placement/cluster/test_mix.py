"""The mix that is learnt."""

from __future__ import annotations

import pytest

from gaia_plugin.placement import Request
from gaia_plugin.placement.cluster import Ask, Mix, Options
from tests.unit.placement.nodes import ask


def test_prices_are_made_each_time_the_mix_has_doubled() -> None:
    mix = Mix()
    due = [number for number in range(1, 1000) if mix.see(ask(16, 25))]
    assert due == [50, 100, 200, 400, 800]


def test_old_habits_are_forgotten_and_new_ones_learnt() -> None:
    mix = Mix()
    for _ in range(20_000):
        mix.see(ask(16, 25))
    for _ in range(60_000):
        mix.see(ask(32, 50))
    times = {seen.request.memory_units: seen.times for seen in mix}
    assert times[16] < times[32] // 10
    assert sum(times.values()) < 17_000


def test_asks_seen_once_each_do_not_pile_up() -> None:
    mix = Mix()
    for number in range(40_000):
        mix.see(ask(1, 1, cpu=number))
    assert len(list(mix)) < 17_000


def test_churn_is_how_many_of_those_that_came_have_left() -> None:
    mix = Mix()
    assert mix.churn == 0
    for _ in range(40_000):
        mix.see(ask(16, 25))
        mix.see(ask(16, 25))
        mix.end()
    assert mix.churn == pytest.approx(0.5, abs=0.01)
    for _ in range(100_000):
        mix.end()
    assert mix.churn == 1


def test_what_is_broken_is_dearer_where_pods_come_and_go() -> None:
    options = Options(opening=0.1, opening_churning=0.5, sets_kept=1.0, sets_kept_churning=9.0)
    assert options.under(0.0) == options
    assert options.under(0.5).opening == pytest.approx(0.3)
    assert options.under(1.0).sets_kept == pytest.approx(9.0)


def test_each_container_is_a_request_with_its_part_of_the_host() -> None:
    mix = Mix({Ask((Request(4), Request(8)), 4000, 1024): 3})
    assert [(s.request.memory_units, s.cpu, s.memory, s.times) for s in mix] == [
        (4, 2000, 512, 3),
        (8, 2000, 512, 3),
    ]


def test_the_order_in_which_asks_came_does_not_show() -> None:
    asks = [ask(16, 25), ask(8), ask(None, 200), ask(8, models="a b"), ask(8, models="c"), ask(cpu=3)]
    one, other = Mix(), Mix()
    for wanted in asks:
        one.see(wanted)
    for wanted in reversed(asks):
        other.see(wanted)
    assert list(one) == list(other)
