"""Compute shares on bad days: drivers that do not answer, clocks that jump, programs that are stopped."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gaia_plugin.agent.compute import EVERY
from gaia_plugin.agent.elastic import WHOLE
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu import Use
from gaia_plugin.slots.processes import Stat
from tests.unit.agent.compute_bench import CORE, FULL, OTHER, slot
from tests.unit.agent.compute_bench import bench as bench


def test_a_driver_without_such_figures_is_told_and_counters_go_on(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 30, "elastic"))
    refused = Refusal(Code.UNAVAILABLE, "Not Supported.")
    for _ in range(20):
        here.driver.answers.append(refused)
        here.step(1, a=FULL)
    assert here.rate("a") == WHOLE
    assert "no use by process" in here.time("a").note
    assert here.time("b").note == ""  # it is idle: nothing of it is wrong


def test_a_driver_that_falls_silent_is_told_after_a_while_and_its_correction_fades(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    untrimmed = here.rate("a")
    for _ in range(20):
        here.says(a=200, b=500)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    assert here.rate("a") > untrimmed + 5 * CORE
    assert here.time("a").note == ""
    here.step(100, a=(30.0, 70.0), b=(60.0, 40.0))
    assert 30 * CORE <= here.rate("a") <= 37 * CORE
    assert "not told who uses this card" in here.time("a").note
    here.says(a=200, b=500)
    here.step(2, a=(30.0, 70.0), b=(60.0, 40.0))
    assert here.time("a").note == ""


@pytest.mark.parametrize("answer", [(), Refusal(Code.UNAVAILABLE, "Not Supported.")])
def test_hard_slots_that_nobody_measures_are_hardly_stretched_and_elastic_ones_are(
    bench: Any, answer: tuple[Use, ...] | Refusal
) -> None:
    here = bench(slot("a", 30), slot("b", 40), slot("c", 25, "elastic", cards=(OTHER,)))
    records = here.records
    records["d"] = slot("d", 60, cards=(OTHER,))
    here.add(records["d"], here.directories.path("a") / "lib")
    for _ in range(40):
        here.driver.answers.extend([answer, answer])
        here.step(1, a=(30.0, 70.0), b=(40.0, 60.0), c=FULL, d=(60.0, 40.0))
    assert 30 * CORE <= here.rate("a") <= 32 * CORE
    assert 40 * CORE <= here.rate("b") <= 42 * CORE
    assert here.rate("c", OTHER) > 50 * CORE
    assert 60 * CORE <= here.rate("d", OTHER) <= 90 * CORE


def test_a_driver_that_hangs_holds_nothing_up(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 30, "elastic"))
    here.hang = True
    here.step(100, a=FULL)
    assert here.rate("a") == WHOLE
    assert here.driver.asked == []
    assert "not told" in here.time("a").note


def test_a_minute_of_silence_is_told_and_then_forgotten(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 40, "elastic"), slot("c", 20))
    for _ in range(10):
        here.says(a=300, b=700)
        here.step(1, a=(60.0, 40.0), b=FULL)
    for _ in range(round(60 / EVERY)):
        here.step(1, a=(60.0, 40.0), b=FULL)
        assert 30 * CORE <= here.rate("a") < 65 * CORE
        assert here.time("b").limit == 700
    assert "not told who uses this card" in here.time("a").note
    for _ in range(10):
        here.says(a=300, b=700)
        here.step(1, a=(60.0, 40.0), b=FULL)
    assert here.time("a").note == here.time("b").note == ""


@pytest.mark.parametrize("jump", [-500.0, -0.1, 0.0, 5.0, 86_400.0])
def test_a_clock_that_jumps_moves_no_limit(bench: Any, jump: float) -> None:
    here = bench(slot("a", 30), slot("b", 40, "elastic"))
    for after in (0.0, jump):
        here.now += after
        for _ in range(30):
            here.says(a=300, b=700)
            here.step(1, a=(60.0, 40.0), b=FULL)
            assert 30 * CORE <= here.rate("a") <= 80 * CORE
            assert 40 * CORE <= here.rate("b") <= WHOLE
            assert here.time("a").limit == 300
        assert here.time("b").limit == 700
        assert here.rate("a") == pytest.approx(60 * CORE, abs=5 * CORE)


def test_a_process_that_is_stopped_is_named(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench(slot("a", 30), slot("b", 40))
    states = {here.pid("a"): Stat("train", "T", 3, 1), here.pid("b"): Stat("serve", "S", 3, 1)}
    monkeypatch.setattr("gaia_plugin.agent.compute.stat", states.get)
    here.step(1, a=FULL, b=FULL)
    assert here.time("a").note == (
        f"Process {here.pid('a')} (train) is stopped by a signal; `kill -CONT {here.pid('a')}` lets it go on."
    )
    assert here.time("b").note == ""


def test_events_that_fail_are_told_for_a_while(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 40))
    here.blind["a"] = int(here.now * 1e9)
    here.step(1, a=FULL, b=FULL)
    assert here.time("a").note.startswith("The driver refuses the events")
    assert here.time("b").note == ""
    here.step(40, a=FULL, b=FULL)
    assert "events" not in here.time("a").note
    here.blind["a"] = 1 << 63  # nonsense, or of another boot
    here.step(1, a=FULL, b=FULL)
    assert "events" not in here.time("a").note


def test_an_idle_card_is_not_asked_about(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"))
    here.step(100)
    assert here.driver.asked == []
    assert here.time("a").note == ""


def test_late_samples_count_when_they_come(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    for step in itertools.count():
        if step % 7 == 0:
            here.says(a=210, b=500)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
        if step == 70:
            break
    assert here.rate("a") > 35 * CORE
    assert here.time("a").note == ""
