"""Compute shares from end to end: agents and programs as users start them, on a card that takes turns.

Shares are read from the simulated card's own timeline; no clock of the machine is asked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.sim import SimConfig, Simulation, make_sim
from tests.unit.cli.conftest import DEADLINE, Allocator, Place, poll

SPIN = Path(__file__).with_name("spin.py")
MS = 1_000_000
SECOND = 1000 * MS


class Card:
    """The first card of a place that takes turns of 2 ms, as real cards do without MPS."""

    def __init__(self, place: Place) -> None:
        self.place = place
        make_sim(place.driver, SimConfig(cards=1, alternate_ms=2, state=place.root.parent / "sim-state"))
        self.truth = Simulation(place.driver)
        self.agent = place.agent()

    def program(self, name: str, cores: int, *words: str) -> Allocator:
        """Start a program in a slot of its own, at rest."""
        size = ("--memory", "1GiB", "--cores", str(cores), "--name", name)
        driver = self.place.driver / "libcuda.so.1"
        program = Allocator(
            self.place.run(*size, *words, program=(sys.executable, "-S", str(SPIN), str(driver)))
        )
        assert program.ask("rest") == [0]
        return program

    def window(self, ns: int) -> dict[int, float]:
        """Let so much of the card's time go by; return the percent that each process had of it."""
        first = self.truth.time(0)
        last = poll(lambda: (now := self.truth.time(0)).at_ns >= first.at_ns + ns and now)
        span = last.at_ns - first.at_ns
        return {pid: 100 * (ran - first.executed.get(pid, 0)) / span for pid, ran in last.executed.items()}

    def reaches(self, what: str, holds: Callable[[dict[int, float]], bool], ns: int = SECOND) -> None:
        """Wait for a window in which something holds; tell the last one when there is none."""
        deadline, seen = time.monotonic() + DEADLINE, {}
        while time.monotonic() < deadline:
            if holds(seen := self.window(ns)):
                return
        pytest.fail(f"{what}: {seen}, {[slot.time for slot in self.place.client.slots()]}")


@pytest.fixture
def card(place: Any) -> Iterator[Card]:
    return Card(place)


def test_an_elastic_slot_gets_the_idle_card_and_gives_it_back(card: Card) -> None:
    alice = card.program("alice", 30, "--elastic")
    bob = card.program("bob", 50, "--elastic")
    a, b = alice.process.pid, bob.process.pid
    assert alice.ask("work", 2 * MS, 20) == [0]
    card.reaches("alone", lambda got: got[a] >= 90)
    assert bob.ask("work", 2 * MS, 20) == [0]
    card.reaches("both", lambda got: got[a] >= 27 and got[b] >= 45)
    # a program that did not get the processor for a moment counts as idle, and what it has is lent
    poll(lambda: sum(slot.time.limit for slot in card.place.client.slots()) <= 1001, "one card in all")
    assert bob.ask("rest") == [0]
    card.reaches("alone again", lambda got: got[a] >= 90)


def test_hard_slots_with_neighbours_get_their_own(card: Card) -> None:
    alice, bob = card.program("alice", 30), card.program("bob", 60)
    a, b = alice.process.pid, bob.process.pid
    assert alice.ask("work", 2 * MS, 10) == bob.ask("work", 2 * MS, 10) == [0]
    card.reaches("30 and 60", lambda got: abs(got[a] - 30) <= 5 and abs(got[b] - 60) <= 5, 2 * SECOND)
    poll(
        lambda: all(abs(s.time.used - s.time.guaranteed) <= 100 for s in card.place.client.slots()),
        "the same in the agent's words",
    )


def test_cores_change_while_kernels_run(card: Card) -> None:
    alice = card.program("alice", 20)
    pid = alice.process.pid
    slot = card.place.client.slots()[0].slot
    assert alice.ask("work", 2 * MS, 10) == [0]
    for cores in (20, 70, 30):
        card.place.client.resize(slot, cores=cores)
        card.reaches(f"{cores} %", lambda got, cores=cores: abs(got[pid] - cores) <= 5)


def test_what_the_library_does_not_count_comes_out_of_the_slots_own_rate(card: Card) -> None:
    alice = card.program("alice", 40)
    pid = alice.process.pid
    # as much again by half goes past the library: 60 % if nobody looked
    assert alice.ask("work", 2 * MS, 10, MS) == [0]
    card.reaches("counted by the driver", lambda got: abs(got[pid] - 40) <= 4, 2 * SECOND)
    assert alice.ask("work", 2 * MS, 10) == [0]
    card.reaches("counted by the library", lambda got: abs(got[pid] - 40) <= 3, 2 * SECOND)


def test_a_driver_that_tells_no_use_is_named_and_limits_hold(card: Card) -> None:
    card.truth.utilisation("unsupported")
    alice = card.program("alice", 30, "--elastic")
    pid = alice.process.pid
    assert alice.ask("work", 2 * MS, 10) == [0]
    card.reaches("alone", lambda got: got[pid] >= 90)
    poll(lambda: "no use by process" in card.place.client.slots()[0].message)
    assert "no use by process" in card.place.gaia("slots").stdout


def test_without_an_agent_an_elastic_slot_falls_back_to_its_guarantee(card: Card) -> None:
    alice = card.program("alice", 30, "--elastic")
    pid = alice.process.pid
    assert alice.ask("work", 2 * MS, 10) == [0]
    card.reaches("alone", lambda got: got[pid] >= 90)
    card.agent.kill()
    card.agent.wait()
    card.reaches("without an agent", lambda got: abs(got[pid] - 30) <= 5)
    card.agent = card.place.agent()
    card.reaches("with another agent", lambda got: got[pid] >= 90)
