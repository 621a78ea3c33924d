"""Bad days of compute shares, from end to end: the others go on, limits hold, and `gaia slots` says why.

Shares are read from the simulated card's own timeline; no clock of the machine is asked.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.cli.conftest import place as place
from tests.unit.cli.conftest import poll
from tests.unit.cli.test_cli_compute import MS, SECOND, Card

SILENT = "The driver has not told who uses this card"


@pytest.fixture
def card(place: Any) -> Card:
    return Card(place)


def says(card: Card, words: str) -> dict[str, str]:
    """What API and `gaia slots` say of each slot, once some slot's note has `words` in it."""
    poll(lambda: any(words in slot.message for slot in card.place.client.slots()), words)
    shown = card.place.gaia("slots").stdout
    assert words in " ".join(shown.split())
    listed = json.loads(card.place.gaia("slots", "--json").stdout)
    assert any(words in each["time"]["note"] for each in listed)
    return {each["slot"]: each["time"]["note"] for each in listed}


def quiet(card: Card) -> None:
    """Wait until nothing is amiss any more."""
    poll(lambda: not any(slot.time.note for slot in card.place.client.slots()), "no note")


def test_a_driver_that_says_nothing_is_named_and_both_keep_their_limits(card: Card) -> None:
    alice, bob = card.program("alice", 30), card.program("bob", 40)
    a, b = alice.process.pid, bob.process.pid
    card.truth.utilisation("none")
    assert alice.ask("work", 2 * MS, 10) == bob.ask("work", 2 * MS, 10) == [0]
    says(card, SILENT)

    def by_counters(got: dict[int, float]) -> bool:
        # no kernel is paid less than its time, so whatever the turns, no window is more than the rate
        assert got[a] <= 33
        assert got[b] <= 43
        return got[a] >= 17 and got[b] >= 22

    card.reaches("by counters", by_counters, 2 * SECOND)
    by_counters(card.window(2 * SECOND))
    card.truth.utilisation("normal")
    quiet(card)


def test_a_driver_that_hangs_is_named_and_both_keep_their_limits(card: Card) -> None:
    alice, bob = card.program("alice", 30), card.program("bob", 40, "--elastic")
    a, b = alice.process.pid, bob.process.pid
    card.truth.delay("nvml", 3600 * SECOND)
    assert alice.ask("work", 2 * MS, 10) == bob.ask("work", 2 * MS, 10) == [0]
    says(card, SILENT)
    # bob always has work, and how much of it alice's kernels meet hangs on how they fall in step
    card.reaches("by counters", lambda got: 17 <= got[a] <= 38 and got[b] >= 50, 2 * SECOND)
    card.agent.kill()  # it waits for its driver, and would do so at its end too


def test_a_stopped_process_is_named_and_the_others_go_on(card: Card) -> None:
    alice, bob = card.program("alice", 30, "--elastic"), card.program("bob", 40, "--elastic")
    a, b = alice.process.pid, bob.process.pid
    assert alice.ask("work", 10_000, 10) == bob.ask("work", 10_000, 10) == [0]
    card.reaches("both", lambda got: got[a] >= 20 and got[b] >= 20)
    os.kill(b, signal.SIGSTOP)
    try:
        card.reaches("one alone", lambda got: got[a] >= 85 and got[b] < 5)
        notes = says(card, f"Process {b} ")
        assert sorted(bool(note) for note in notes.values()) == [False, True]
    finally:
        os.kill(b, signal.SIGCONT)
    card.reaches("both again", lambda got: got[b] >= 30)
    quiet(card)


def test_events_that_fail_are_named_and_the_other_keeps_its_share(card: Card) -> None:
    alice, bob = card.program("alice", 30), card.program("bob", 40)
    a, b = alice.process.pid, bob.process.pid
    assert alice.ask("work", 2 * MS, 10) == [0]
    card.reaches("measured", lambda got: abs(got[a] - 30) <= 5)
    card.truth.fail("event_query", 2, 1 << 30)
    says(card, "The driver refuses the events")
    assert bob.ask("work", 2 * MS, 10) == [0]
    card.reaches("unmeasured", lambda got: 5 <= got[a] <= 38 and 20 <= got[b] <= 48, 2 * SECOND)
    card.truth.clear()
    quiet(card)
    card.reaches("measured again", lambda got: abs(got[a] - 30) <= 5 and abs(got[b] - 40) <= 5)


def test_without_an_agent_a_hard_slot_keeps_to_its_cores(card: Card) -> None:
    alice, bob = card.program("alice", 30), card.program("bob", 60)
    a = alice.process.pid
    assert alice.ask("work", 2 * MS, 10) == bob.ask("work", 2 * MS, 10) == [0]
    card.reaches("beside another", lambda got: abs(got[a] - 30) <= 5)
    card.agent.kill()
    card.agent.wait()
    assert bob.ask("rest") == [0]
    card.reaches("alone, without an agent", lambda got: abs(got[a] - 30) <= 2)


@contextmanager
def _untouched(card: Card) -> Iterator[None]:
    before = [(slot.slot, slot.granted, slot.compute) for slot in card.place.client.slots()]
    yield
    assert [(slot.slot, slot.granted, slot.compute) for slot in card.place.client.slots()] == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--cores", "0"), "percent"),
        (("--cores", "-5"), "percent"),
        (("--cores", "71"), "70 %"),
        (("--cores", "101"), "100 %"),
        (("--cores", "71", "--elastic"), "70 %"),
        (("--cores", "10", "--compute", "turbo"), "hard or elastic"),
    ],
)
def test_compute_that_cannot_be_kept_is_refused_and_nobody_notices(
    card: Card, words: tuple[str, ...], why: str
) -> None:
    alice = card.program("alice", 30)
    assert alice.ask("work", 2 * MS, 10) == [0]
    with _untouched(card):
        done = card.place.gaia(
            "run", "--driver", str(card.place.driver), "--memory", "1GiB", *words, "--", "true"
        )
        assert done.returncode in (2, 3)
        assert why in " ".join((done.stdout + done.stderr).replace("│", " ").split())
    card.reaches("its own", lambda got: abs(got[alice.process.pid] - 30) <= 5)
