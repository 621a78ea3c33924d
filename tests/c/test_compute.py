"""C16-C18: a slot gets its share of the card's time, whatever its programs launch and however.

Shares are read from the simulated card's own timeline; no test looks at how long anything took here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.c.computebench import ELASTIC, FULL, HARD, Slot, Tenant, mean, misses, simulation, windows
from tests.c.slotbench import Bench

Make = Callable[..., Bench]
PERCENT = 10_000
MS = 1_000_000

SHAPES: dict[str, dict[str, object]] = {
    "short grid": {"blocks": 1_024, "ns": 3 * MS},
    "long grid": {"blocks": 65_536, "ns": 1 * MS},
    "huge grid": {"blocks": 524_288, "ns": 8 * MS},
    "long kernel, synchronised": {"blocks": 1_024, "ns": 50 * MS, "sync": 1},
}

# multiprocessors, limit, shape: every one of each
CELLS = [
    (40, 10, "long kernel, synchronised"),
    (108, 25, "short grid"),
    (132, 50, "huge grid"),
    (188, 75, "long grid"),
    (40, 50, "long grid"),
    (188, 75, "long kernel, synchronised"),
]


@pytest.fixture
def tenants() -> Iterator[ExitStack]:
    """Tenants entered here are ended with the test."""
    with ExitStack() as stack:
        yield stack


def _share(slot: Slot, seconds: float = 1.5, warm: float = 0.4) -> float:
    """What all processes of the card get together, after a moment to settle."""
    sim = simulation(slot.bench)
    windows(sim, warm, warm)
    return mean(windows(sim, seconds, seconds / 3))


@pytest.mark.parametrize(("multiprocessors", "limit", "shape"), CELLS)
def test_c17_a_share_is_that_share_of_time(
    bench: Make, tenants: ExitStack, multiprocessors: int, limit: int, shape: str
) -> None:
    slot = Slot(bench(extra=f"multiprocessors = {multiprocessors}")).make(limit * PERCENT)
    tenants.enter_context(slot.tenant(**SHAPES[shape]))
    assert misses(slot, limit, off=5, each=10, seconds=5, window=1, warm=1) == []


@pytest.mark.long
@pytest.mark.parametrize("limit", [10, 25, 50, 75])
@pytest.mark.parametrize("multiprocessors", [40, 108, 132, 188])
@pytest.mark.parametrize("shape", SHAPES)
def test_c17_the_whole_table(
    bench: Make, tenants: ExitStack, multiprocessors: int, limit: int, shape: str
) -> None:
    slot = Slot(bench(extra=f"multiprocessors = {multiprocessors}")).make(limit * PERCENT)
    tenants.enter_context(slot.tenant(**SHAPES[shape]))
    assert misses(slot, limit, off=1, each=3, seconds=6, window=1, warm=1) == []


def test_the_cells_cover_every_shape_card_and_limit() -> None:
    cards, limits, shapes = (set(column) for column in zip(*CELLS, strict=True))
    assert (cards, limits, shapes) == ({40, 108, 132, 188}, {10, 25, 50, 75}, set(SHAPES))


WAYS = ["plain", "ex", "cooperative", "multi", "launch", "grid", "grid_async", "graph"]
PER_THREAD = ["plain_ptsz", "ex_ptsz", "cooperative_ptsz", "graph_ptsz"]


@pytest.mark.parametrize("how", WAYS + PER_THREAD)
def test_c16_every_way_to_launch_is_limited(bench: Make, tenants: ExitStack, how: str) -> None:
    slot = Slot(bench()).make(25 * PERCENT)
    tenants.enter_context(slot.tenant(how=how, ns=100_000 if "graph" in how else MS))
    assert misses(slot, 25) == []


@pytest.mark.parametrize(
    "options",
    [
        {"ns": 10_000},
        {"ns": 10_000, "sync": 1},
        {"ns": 10_000, "mix": 100, "sync": 100},
        {"ns": 5_000, "mix": 100, "sync": 100},
        {"ns": 20_000, "how": "plain_ptsz", "threads": 8},
        {"ns": 5_000, "how": "plain_ptsz", "threads": 8},
        {"ns": 100_000, "streams": 8, "threads": 2},
        {"ns": MS, "threads": 4},
        {"ns": MS, "streams": 64, "threads": 2},
        {"ns": MS, "capture": 1},
        {"ns": MS, "fork": 1},
    ],
    ids=[
        "tiny",
        "tiny-synchronised",
        "mixed",
        "mixed-in-halves",
        "per-thread",
        "tiny-per-thread",
        "streams",
        "threads",
        "many-streams",
        "capturing",
        "forked",
    ],
)
def test_c16_all_kinds_of_programs_are_limited(
    bench: Make, tenants: ExitStack, options: dict[str, object]
) -> None:
    slot = Slot(bench()).make(25 * PERCENT)
    tenants.enter_context(slot.tenant(**options))
    assert misses(slot, 25) == []


def test_c16_each_part_of_a_launch_for_several_devices_is_limited_by_its_card(
    bench: Make, tenants: ExitStack
) -> None:
    slot = Slot(bench(cards=2)).make(60 * PERCENT).make(20 * PERCENT, card=1)
    tenants.enter_context(slot.tenant(how="multi", ns=MS, devices=2))
    assert misses(slot, 20) == [], "they go together, at the pace of the slower"
    slot.rate(25 * PERCENT)
    slot.rate(80 * PERCENT, card=1)
    assert misses(slot, 25) == []
    sim = simulation(slot.bench)
    before = [sum(sim.executed(card).values()) for card in (0, 1)]
    windows(sim, 1, 1)
    ran = [sum(sim.executed(card).values()) - was for card, was in zip((0, 1), before, strict=True)]
    assert ran[0] == pytest.approx(ran[1], rel=0.1)


def test_a_program_that_needs_less_than_its_share_never_waits(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(50 * PERCENT)
    tenants.enter_context(slot.tenant(ns=10_000, sync=1, gap=190))
    assert _share(slot) < 10
    assert [row[2] for row in slot.meter()] == [0]


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_c18_processes_of_a_slot_share_one_limit(bench: Make, tenants: ExitStack, processes: int) -> None:
    slot = Slot(bench()).make(30 * PERCENT)
    for _ in range(processes):
        tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, 30, seconds=2) == []


def test_the_counters_tell_what_the_card_did(bench: Make) -> None:
    slot = Slot(bench()).make(50 * PERCENT)
    with slot.tenant(ns=MS, seconds=1) as tenant:
        tenant.process.wait(30)
        (pid, busy, waited, launches), *others = slot.meter()
        ran = simulation(slot.bench).executed(0)[pid]
    assert others == []
    assert waited > 0
    assert busy == pytest.approx(ran, rel=0.05)
    assert launches == pytest.approx(ran / MS, rel=0.05)


def test_a_change_is_in_force_while_kernels_run(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(10 * PERCENT)
    tenants.enter_context(slot.tenant(ns=3 * MS))
    sim = simulation(slot.bench)
    windows(sim, 0.5, 0.5)
    for percent in (80, 20, 100, 40):
        slot.rate(percent * PERCENT)
        assert misses(slot, percent, seconds=0.6, window=0.2, warm=0.2) == []


def _tasks(tenant: Tenant) -> set[str]:
    return set(os.listdir(f"/proc/{tenant.pid}/task"))


def test_an_unlimited_slot_has_no_thread_until_it_is_limited(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(FULL)
    tenant = tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, 100, seconds=0.5) == []
    before = _tasks(tenant)
    assert [row[1:] for row in slot.meter()] == [(0, 0, 0)]
    slot.rate(25 * PERCENT)
    assert misses(slot, 25) == []
    assert len(_tasks(tenant) - before) == 1
    slot.rate(FULL)
    assert misses(slot, 100, seconds=0.5) == []


def test_elastic_runs_at_the_rate_and_falls_back_to_the_guarantee(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(FULL, ELASTIC, 30 * PERCENT)
    tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, 100) == []
    assert slot.meter()[0][1] > 0, "measured also at full rate"
    slot.beat(6)
    assert misses(slot, 30) == []
    slot.beat()
    assert misses(slot, 100) == []


@pytest.mark.parametrize("trimmed", [10, 60], ids=["below", "above"])
def test_a_hard_slot_falls_back_to_its_guarantee_too(bench: Make, tenants: ExitStack, trimmed: int) -> None:
    """The agent corrects a rate by what the card was really used; nobody corrects it any more."""
    slot = Slot(bench()).make(trimmed * PERCENT, HARD, 35 * PERCENT)
    tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, trimmed) == []
    slot.beat(6)
    assert misses(slot, 35) == []
    slot.beat()
    assert misses(slot, trimmed) == []


def test_a_hard_slot_with_a_whole_card_needs_no_agent(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(FULL)
    slot.beat(3600)
    tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, 100) == []


@pytest.mark.parametrize("family", ["event_create", "event_record", "event_query"])
@pytest.mark.parametrize("options", [{}, {"sync": 1}, {"how": "plain_ptsz"}, {"streams": 4}])
def test_events_that_fail_are_no_way_round(
    bench: Make, tenants: ExitStack, family: str, options: dict[str, object]
) -> None:
    """The share is then kept by asking the stream: never above, somewhat below."""
    slot = Slot(bench()).make(40 * PERCENT)
    with slot.tenant(ns=1, seconds=0.1) as first:
        first.process.wait(30)
    simulation(slot.bench).fail(family, 2, 1 << 30)
    tenants.enter_context(slot.tenant(ns=3 * MS, **options))
    assert misses(slot, 31.5, off=11.5, seconds=1) == []


def test_events_that_fail_once_are_tried_again(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(40 * PERCENT)
    tenants.enter_context(slot.tenant(ns=3 * MS))
    sim = simulation(slot.bench)
    sim.fail("event_record", 700, 1)
    windows(sim, 1.5, 1.5)
    assert sim.pending_failures("event_record") == 0
    assert misses(slot, 40) == []


def test_a_stopped_process_holds_up_nobody(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(40 * PERCENT)
    stopped, other = (tenants.enter_context(slot.tenant(ns=10_000)) for _ in range(2))
    sim = simulation(slot.bench)
    windows(sim, 0.3, 0.3)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        windows(sim, 0.3, 0.3)
        assert misses(slot, 40, other.pid, seconds=1) == []
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert misses(slot, 40) == []


def test_killed_processes_leave_no_debt_and_no_lock(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(40 * PERCENT)
    for _ in range(5):
        with slot.tenant(ns=100_000) as victim:
            victim.process.kill()
            victim.process.wait(30)
    tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, 40) == []


@pytest.mark.parametrize("ahead", [3600 * 10**9, 2**63, -(10**9)])
def test_nonsense_in_the_bucket_passes(bench: Make, tenants: ExitStack, ahead: int) -> None:
    slot = Slot(bench()).make(30 * PERCENT)
    tenants.enter_context(slot.tenant(ns=MS))
    slot.bench.page("bucket", slot.path, 0, ahead % 2**64)
    assert misses(slot, 30, warm=1.5) == []


def test_no_rate_is_hardly_anything_and_no_error(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(0)
    tenants.enter_context(slot.tenant(ns=MS))
    assert _share(slot, 1.5) < 1


def test_a_page_that_is_cut_short_keeps_the_last_rate(bench: Make, tenants: ExitStack) -> None:
    slot = Slot(bench()).make(30 * PERCENT)
    tenants.enter_context(slot.tenant(ns=MS))
    assert misses(slot, 30) == []
    for name in ("limits", "usage"):
        (slot.path / name).rename(slot.path / f"{name}.old")
        Path(slot.path / name).touch()
    assert misses(slot, 30) == []


def test_a_failed_launch_is_the_drivers_answer_and_costs_nothing(bench: Make) -> None:
    slot = Slot(bench(extra=f"kernel_ns = {MS}")).make(50 * PERCENT)
    with slot.bench.client() as program:
        program.start()
        assert program.call("launch 3") == 0
        sim = simulation(slot.bench)
        for _ in range(50):
            sim.fail("launch", 700, 1)
            assert program.call("launch 1") == 700
        assert program.calls("launch 1", "sync") == [0, 0]
        assert slot.meter()[0][3] == 4


def test_streams_and_contexts_may_end_at_any_time(bench: Make) -> None:
    slot = Slot(bench(extra="kernel_ns = 200000")).make(60 * PERCENT)
    with slot.bench.client() as program:
        program.start()
        for _ in range(20):
            assert program.calls("stream 5", "launch 20 5", "end_stream 5") == [0, 0, 0]
        for _ in range(5):
            assert program.calls("create 3 0 6", "launch 20", "destroy 6", "set 0") == [0, 0, 0, 0]
        for end in ("reset 0", "release 0"):
            assert program.calls("launch 20", end, "retain 0 0", "set 0") == [0, 0, 0, 0]
        assert program.calls("launch 20", "sync") == [0, 0]


def test_an_idle_program_costs_no_cpu(bench: Make) -> None:
    slot = Slot(bench(extra=f"kernel_ns = {MS}")).make(50 * PERCENT)
    with slot.bench.client() as program:
        program.start()
        assert program.calls("launch 5", "sync") == [0, 0]
        sim = simulation(slot.bench)

        def switches() -> int:
            texts = Path(f"/proc/{program.process.pid}/task").glob("*/status")
            return sum(int(text.read_text().rsplit("\t", 2)[1].split()[0]) for text in texts)

        def asleep() -> bool:
            before = switches()
            windows(sim, 0.2, 0.2)
            return switches() == before

        assert any(asleep() for _ in range(20))
        before = switches()
        windows(sim, 1, 1)
        assert switches() == before
