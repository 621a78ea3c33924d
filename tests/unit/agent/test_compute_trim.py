"""Rates that are corrected by what the driver says a slot got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gaia_plugin.agent.compute import EVERY
from gaia_plugin.agent.elastic import MEASURED, WHOLE
from gaia_plugin.agent.truth import SHORTEST
from tests.unit.agent.compute_bench import CORE, FULL, slot
from tests.unit.agent.compute_bench import bench as bench


def shares_on_a_card_that_alternates(rates: dict[str, float]) -> dict[str, float]:
    """What slots get when event time has the others' kernels in it: all run in equal turns."""
    at_work = dict.fromkeys(rates, 1.0)
    for _ in range(200):
        # while a slot has work queued it runs 1 / n of the time and pays for all of it
        others = {name: sum(at_work.values()) - at_work[name] for name in rates}
        at_work = {name: min(1.0, rates[name]) for name in rates}
        got = {name: at_work[name] / (1 + others[name]) for name in rates}
    return got


def test_thirty_and_sixty_become_thirty_and_sixty(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    got: dict[str, float] = {}
    for _ in range(100):
        got = shares_on_a_card_that_alternates({name: here.rate(name) / WHOLE for name in ("a", "b")})
        here.says(a=round(1000 * got["a"]), b=round(1000 * got["b"]))
        here.step(1, a=(50.0, 50.0), b=(60.0, 40.0))
    assert got["a"] == pytest.approx(0.30, abs=0.01)
    assert got["b"] == pytest.approx(0.60, abs=0.01)
    assert here.time("a").limit == 300
    assert here.time("a").used == pytest.approx(300, abs=10)


def test_alone_a_slot_is_not_trimmed_by_whole_percents(bench: Any) -> None:
    here = bench(slot("a", 25))
    for _ in range(20):
        here.says(a=240)
        here.step(1, a=(25.0, 75.0))
    assert here.rate("a") == 25 * CORE


def test_one_that_wants_no_more_is_not_raised(bench: Any) -> None:
    here = bench(slot("a", 50), slot("b", 50))
    for _ in range(40):
        here.says(a=100, b=500)
        here.step(1, a=(10.0, 0.0), b=(50.0, 50.0))
    before = here.rate("a")
    for _ in range(40):
        here.says(a=100, b=500)
        here.step(1, a=(10.0, 0.0), b=(50.0, 50.0))
    assert here.rate("a") == before


def test_figures_from_before_a_neighbours_return_correct_nothing(bench: Any) -> None:
    here = bench(slot("a", 30, "elastic"), slot("b", 50, "elastic"))
    for _ in range(10):
        here.says(a=1000)
        here.step(1, a=FULL)
    assert here.rate("a") == WHOLE
    here.step(1, a=(40.0, 60.0), b=(40.0, 60.0))
    before = here.rate("a"), here.rate("b")
    here.says(a=900, b=100)  # of a time when b had hardly begun
    here.step(1, a=(40.0, 60.0), b=(40.0, 60.0))
    assert (here.time("a").limit, here.time("b").limit) == (375, 625)
    assert (here.rate("a"), here.rate("b")) == before


def test_one_that_went_to_rest_is_not_raised_for_what_it_did_before(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    for _ in range(20):
        here.says(a=300, b=600)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    before = here.rate("b")
    for _ in range(10):
        here.says(a=300)
        here.step(1, a=(30.0, 70.0))
    assert here.rate("b") <= before
    assert here.rate("a") == 30 * CORE  # alone, so by its own counters


@pytest.mark.parametrize("lie", [0, 1000])
def test_a_driver_that_lies_halves_a_share_at_most(bench: Any, lie: int) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    for _ in range(100):
        here.says(a=lie, b=600)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    assert 15 * CORE <= here.rate("a") <= MEASURED


# -- alone


def windows(here: Any, use: Callable[[int], float]) -> None:
    """Let the driver tell the next windows that have ended, in percent by their number; 0 = no sample."""
    ended = here.now // SHORTEST
    first = int((here.now - EVERY) // SHORTEST) + 1
    for number in range(first, int(ended) + 1):
        if percent := round(use(number)):
            here.says_of(number * SHORTEST, a=percent * 10)


def alone(here: Any, factor: float, seconds: float = 20.0) -> float:
    """Let "a" get `factor` times its rate, and want more; return what it got at last, in percent."""
    got = 0.0
    for _ in range(round(seconds / EVERY)):
        got = here.rate("a") / CORE * factor
        windows(here, lambda _, got=got: got)
        here.step(1, a=(min(99.0, got), 50.0))
    return got


@pytest.mark.parametrize(
    ("cores", "factor", "least", "most"),
    [
        (25, 1.24, 24.4, 26.5),
        (25, 1.9, 24.4, 26.5),
        (25, 0.72, 23.5, 25.6),
        (25, 1.04, 26, 26),  # inside the band
        (25, 0.96, 24, 24),
        (60, 1.3, 59.4, 61.5),
        (10, 1.3, 9.4, 11.5),
        (25, 3.0, 37, 38),  # no share is more than halved
        (50, 0.5, 37, 38),  # nor raised by more than half
    ],
)
def test_alone_a_slot_is_corrected_when_it_is_far_off(
    bench: Any, cores: int, factor: float, least: float, most: float
) -> None:
    assert least <= alone(bench(slot("a", cores)), factor) <= most


@pytest.mark.parametrize("factor", [1.0, 0.5, 1.7])
def test_a_correction_of_another_program_goes_away(bench: Any, factor: float) -> None:
    here = bench(slot("a", 25))
    alone(here, factor)
    assert alone(here, 1.0) == pytest.approx(25, abs=1.6)


@pytest.mark.parametrize(("percent", "every"), [(30, 1), (30, 2), (30, 3), (60, 2), (60, 4), (20, 5)])
def test_pauses_without_samples_are_part_of_the_time(bench: Any, percent: int, every: int) -> None:
    # a long kernel in one of so many windows, at its share: the driver tells of that window only
    here = bench(slot("a", percent // every))
    for step in range(200):
        windows(here, lambda number: 0 if number % every else percent)
        here.step(1, a=(percent / every, 60.0 if step % every else 0.0))
        assert here.rate("a") == percent // every * CORE


@pytest.mark.parametrize(
    ("kernel_ms", "cores"), [(50, 25), (50, 75), (70, 30), (100, 50), (200, 25), (400, 40)]
)
def test_long_kernels_at_their_share_are_left_alone(bench: Any, kernel_ms: int, cores: int) -> None:
    here = bench(slot("a", cores))
    period = kernel_ms / cores / 10

    def ran(until: float) -> float:
        return until // period * kernel_ms / 1000 + min(until % period, kernel_ms / 1000)

    for _ in range(300):
        windows(here, lambda n: 100 * (ran(n * SHORTEST) - ran((n - 1) * SHORTEST)) / SHORTEST)
        here.step(1, a=(cores, 50.0))
        assert here.rate("a") == cores * CORE


def test_alone_one_that_wants_less_is_not_raised(bench: Any) -> None:
    here = bench(slot("a", 50), slot("b", 30))
    for step in range(100):
        windows(here, lambda _: 20)
        here.step(1, a=(20.0, 60.0 if step % 4 == 0 else 0.0))
        assert here.rate("a") == 50 * CORE


def test_a_raise_does_not_outlast_the_wish_for_it(bench: Any) -> None:
    here = bench(slot("a", 25))
    alone(here, 0.6)
    assert here.rate("a") > 35 * CORE
    for _ in range(200):
        windows(here, lambda _: 20)
        here.step(1, a=(20.0, 0.0))
    assert here.rate("a") == pytest.approx(25 * CORE, rel=0.01)


def test_what_is_told_of_one_that_is_corrected_is_the_drivers_word(bench: Any) -> None:
    here = bench(slot("a", 25))
    for _ in range(100):
        windows(here, lambda _: here.rate("a") / CORE + 10)  # ten of them past the library
        here.step(1, a=(here.rate("a") / CORE, 50.0))
    assert here.rate("a") < 18 * CORE
    assert 240 <= here.time("a").used <= 265


def test_company_begins_without_the_correction_of_before_and_so_does_its_end(bench: Any) -> None:
    here = bench(slot("a", 25), slot("b", 50))
    alone(here, 1.5)
    assert here.rate("a") < 19 * CORE
    here.says(a=250)
    here.step(1, a=(25.0, 75.0), b=(50.0, 50.0))
    assert here.rate("a") > 25 * CORE
    for _ in range(10):
        here.says(a=150, b=500)
        here.step(1, a=(40.0, 60.0), b=(50.0, 50.0))
    trimmed = here.rate("a")
    for _ in range(7):
        here.says(a=400)
        here.step(1, a=(40.0, 60.0))
    # figures of the company count no more, and those of being alone do not count yet
    assert trimmed > here.rate("a") > 20 * CORE


def test_a_correction_does_not_outlast_a_long_rest(bench: Any) -> None:
    here = bench(slot("a", 25))
    alone(here, 1.5)
    here.step(10)
    here.now += 60.0
    here.step(1, a=(1.0, 0.0))
    assert here.rate("a") == pytest.approx(25 * CORE, rel=0.01)


@pytest.mark.parametrize("mode", ["hard", "elastic"])
def test_a_silent_driver_lets_a_correction_go(bench: Any, mode: str) -> None:
    here = bench(slot("a", 25, mode, most=25))
    alone(here, 1.5)
    assert here.rate("a") < 19 * CORE
    here.step(100, a=(25.0, 75.0))
    assert here.rate("a") == pytest.approx(25 * CORE, rel=0.01)
