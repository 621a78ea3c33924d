"""The limit over several processes: races, SIGKILL, fork, exec."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.c.slotbench import MIB, OOM, Bench

Make = Callable[..., Bench]
WAIT_NS = 1_000_000_000
"""How long the library waits for the announcements of others (core/account.h)."""


def _rounds(slot: Bench, processes: int, size: int, rounds: int, granted: int) -> None:
    slot.page("delay", slot.state, "alloc", 20_000_000)
    out = slot.run("rounds", processes, size, rounds, timeout=800)
    assert slot.truth()[1] <= 1024 * MIB
    found = [tuple(map(int, line.split())) for line in out.splitlines()]
    assert len(found) == rounds
    for count, slowest_ns in found:
        # who waits longer than that for the others, who may not get the processor, is refused
        assert count == granted or (slowest_ns > WAIT_NS and count < granted), found


def _open(slot: Bench) -> None:
    """Make the simulator's state file, so that delays can be written into it."""
    with slot.client() as program:
        program.start()


def test_c09_exactly_one_of_two_gets_the_last_bytes(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    _open(slot)
    _rounds(slot, 2, 600 * MIB, 100, 1)


def test_c09_five_of_eight(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    _open(slot)
    _rounds(slot, 8, 200 * MIB, 20, 5)


@pytest.mark.long
def test_c09_five_hundred_rounds(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    _open(slot)
    _rounds(slot, 2, 600 * MIB, 500, 1)
    _rounds(slot, 8, 200 * MIB, 100, 5)


def _churn(slot: Bench, kills: int) -> None:
    done, _slowest, wrong = map(int, slot.run("churn", kills, 1024 * MIB, 7, timeout=800).split())
    assert (done, wrong) == (kills, 0)
    assert slot.truth()[1] <= 1024 * MIB


def test_c10_killed_at_any_instruction_the_next_process_gets_everything(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    _churn(slot, 150)


@pytest.mark.long
def test_c10_two_thousand_kills(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    _churn(slot, 2000)


def test_a_stopped_announcer_keeps_its_bytes_and_blocks_nobody_for_ever(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as stopped, slot.client() as other:
        stopped.start()
        other.start()
        # it announces, and then stays within the driver's call for as long as it takes to stop it there
        slot.page("delay", slot.state, "alloc", 3600 * 10**9)
        stopped.say(f"alloc 1 {600 * MIB}")
        while not any(place.cards[0][1] for place in slot.places()):
            pass
        stopped.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.process.pid, os.WSTOPPED | os.WNOWAIT)
        slot.page("delay", slot.state, "alloc", 0)
        assert other.call(f"alloc 1 {600 * MIB}") == OOM
        assert other.call(f"alloc 1 {400 * MIB}") == 0
        stopped.kill()
        assert other.call(f"alloc 2 {600 * MIB}") == 0, "the announcement died with its process"


def test_two_processes_share_one_limit_and_the_dead_give_back(bench: Make) -> None:
    slot = bench(context=100 * MIB)
    slot.card(0, 1024 * MIB)
    with slot.client() as one, slot.client() as two:
        one.start()
        two.start()
        assert one.call(f"alloc 1 {700 * MIB}") == 0
        assert two.call(f"alloc 1 {200 * MIB}") == OOM
        assert two.numbers("info") == [0, 124 * MIB, 1024 * MIB]
        one.kill()
        assert two.call(f"alloc 1 {924 * MIB}") == 0
        assert two.call("alloc 2 1") == OOM
        assert len(slot.places()) == 1


def test_c11_forked_children_hold_nothing_and_take_nothing_from_their_parent(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {256 * MIB}") == 0
        for lines, expected in (
            ("pid", [0]),  # ends at once
            (f"init;retain 0 5;set 5;alloc 6 {512 * MIB};alloc 7 {512 * MIB}", [0, 0, 0, 0, OOM]),
            (f"alloc 6 {768 * MIB + 1}", [3]),  # not initialised there: the driver's own answer
            (f"init;retain 0 5;set 5;alloc 6 {768 * MIB};alloc 7 1", [0, 0, 0, 0, OOM]),
        ):
            answers = [program.call(f"fork {lines}")] + [program.read() for _ in expected]
            assert answers[-1] == 0, "the child ended well"
            assert answers[:-1] == expected
            program.call("alloc 8 1073741824")  # a refusal sweeps the dead
            assert slot.used() == 256 * MIB
            assert len(slot.places()) == 1, "no place of a child is left"
        assert program.call("free 1") == 0


def test_fork_before_any_cuda_call(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as program:
        assert program.call("init") == 0
        first = program.call(f"fork init;retain 0 0;set 0;alloc 1 {1024 * MIB};alloc 2 1")
        assert [first] + [program.read() for _ in range(5)] == [0, 0, 0, 0, OOM, 0]
        program.calls("retain 0 0", "set 0")
        assert program.call(f"alloc 1 {1024 * MIB}") == 0


def test_exec_takes_over_its_own_stale_place(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {800 * MIB}") == 0
        before = slot.places()
        program.say("exec")
        program.start()
        assert program.call(f"alloc 1 {1024 * MIB}") == 0, "a fresh image holds nothing"
        after = slot.places()
        assert [(p.index, p.pid) for p in after] == [(p.index, p.pid) for p in before]


def test_a_second_copy_in_a_namespace_of_its_own_counts_too(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {800 * MIB}") == 0
        assert program.call("again") == 0
        program.start()
        assert program.call(f"alloc 2 {800 * MIB}") == OOM
        assert program.call(f"alloc 2 {200 * MIB}") == 0
        assert len(slot.places()) == 2
        assert slot.used() == 1000 * MIB


def test_many_processes_each_find_a_place(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    clients = [slot.client() for _ in range(12)]
    try:
        for client in clients:
            client.start()
            assert client.call(f"alloc 1 {64 * MIB}") == 0
        assert len({place.index for place in slot.places()}) == 12
        assert slot.used() == 12 * 64 * MIB
    finally:
        for client in clients:
            client.close()
