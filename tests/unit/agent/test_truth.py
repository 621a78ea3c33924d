"""What is known of a process's use by samples that leave idle times out."""

from __future__ import annotations

import pytest

from gaia_plugin.agent.gauge import Answer
from gaia_plugin.agent.truth import KEPT, CardTruth
from gaia_plugin.gpu import Use

MINE, OTHERS = 1, 2
WINDOW = 166_667


def told(*windows: int, pid: int = MINE, every: int = WINDOW) -> CardTruth:
    """The figures of a card after so many windows, each told as it ends; 0 = no sample of it."""
    truth = CardTruth()
    for number, permille in enumerate(windows):
        if permille:
            at = number * every
            truth.step(at / 1e6, Answer((Use(pid, at, permille),)), True)
    return truth


@pytest.mark.parametrize(
    ("truth", "least", "most"),
    [
        (told(*[250] * 7), 250_000, 250_000),
        (told(*[300, 200] * 4), 242_857, 242_857),
        (told(*[300, 0, 0] * 3, 300), 100_000, 300_000),
        (told(*[300, 0] * 4, 300), 150_000, 300_000),
        (told(*[250] * 4, every=6 * WINDOW), 41_667, 250_000),
        (told(*[250] * 7, every=WINDOW // 2), 250_000, 250_000),
    ],
    ids=["steady", "changing", "a third of the time", "half of it", "windows of a second", "shorter windows"],
)
def test_the_truth_lies_between(truth: CardTruth, least: int, most: int) -> None:
    found = truth.between([MINE], float("-inf"))
    assert found is not None
    assert found.least == pytest.approx(least, abs=200)
    assert found.most == pytest.approx(most, abs=200)
    assert found.least <= found.most


@pytest.mark.parametrize(
    ("truth", "since"),
    [
        (CardTruth(), -1.0),
        (told(250), -1.0),
        (told(*[250] * 7, pid=OTHERS), -1.0),
        (told(*[250] * 7), 0.9),
        (told(*[250] * 7), 5.0),
    ],
    ids=["nothing told", "one sample", "of others", "one since then", "none since then"],
)
def test_two_samples_of_ones_own_are_needed(truth: CardTruth, since: float) -> None:
    assert truth.between([MINE], since) is None


def test_several_processes_are_added_up_whatever_the_times_of_their_samples() -> None:
    truth = CardTruth()
    for number in range(12):
        at = number * WINDOW // 2
        truth.step(at / 1e6, Answer((Use(MINE if number % 2 else OTHERS, at, 200),)), True)
    found = truth.between([MINE, OTHERS], -1.0)
    assert found is not None
    assert found.most == 400_000
    assert 360_000 <= found.least <= 400_000  # one sample more or less at the ends


def test_chance_is_small_for_steady_work_and_large_for_long_kernels_with_pauses() -> None:
    steady, long = told(*[250] * 13), told(*[1000, 500, 0, 0, 0, 0] * 2, 1000)
    assert (found := steady.between([MINE], -1.0)) is not None
    assert found.error < 1000
    assert (found := long.between([MINE], -1.0)) is not None
    assert found.error > 80_000


def test_old_samples_are_forgotten() -> None:
    truth = told(*[900] * 12, *[0] * round(KEPT * 6), *[100] * 12)
    found = truth.between([MINE], -1.0)
    assert found is not None
    assert found.most == 100_000
