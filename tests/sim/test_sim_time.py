"""The simulated card's timeline: how long kernels take, who runs when, and what events say of it.

Times are read from the timeline itself; none is measured by a clock of the test.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gaia_plugin.sim import CardConfig, CardTime, Simulation
from tests.sim.sim_client import Client, run_code

MS = 1_000_000
SECOND = 1_000 * MS
SPIN = """
start()
module = ok(cu.cuModuleLoadData(b"image"))
def kernel(name): return ok(cu.cuModuleGetFunction(module, name.encode()))
def spin(ns): return kernel(f"gaia_spin_{ns}")
def launch(f, stream=0, grid=1): ok(cu.cuLaunchKernel(f, grid, 1, 1, 1, 1, 1, 0, stream, 0, 0))
def event(stream=0, flags=0):
    e = ok(cu.cuEventCreate(flags)); ok(cu.cuEventRecord(e, stream)); return e
def between(a, b): return ok(cu.cuEventElapsedTime(a, b))
"""
DEEP = "for _ in range(2000): launch(f)"
Machine = Callable[..., Path]


class Card:
    """A machine with programs on its first card."""

    def __init__(self, driver: Path) -> None:
        self.truth = Simulation(driver)
        self.driver = driver
        self.programs: list[Client] = []

    def program(self) -> Client:
        """Start a program that can launch and time kernels."""
        self.programs.append(Client(self.driver))
        self.programs[-1].do(SPIN)
        return self.programs[-1]

    def until(self, reached: Callable[[CardTime], bool]) -> CardTime:
        """Look at the card until something is so, and return what it looked like then."""
        deadline = time.monotonic() + 120
        while not reached(seen := self.truth.time(0)):
            assert time.monotonic() < deadline, seen
            time.sleep(0.002)  # the programs need the processor more
        return seen

    def window(self, ns: int) -> tuple[CardTime, dict[int, float]]:
        """Let `ns` of the card's time go by; return its end and each program's share of it."""
        a = self.truth.time(0)
        b = self.until(lambda seen: seen.at_ns >= a.at_ns + ns)
        span = b.at_ns - a.at_ns
        return b, {pid: (ran - a.executed.get(pid, 0)) / span for pid, ran in b.executed.items()}


@pytest.fixture
def card(machine: Machine) -> Iterator[Callable[..., Card]]:
    made: list[Card] = []

    def make(**values: object) -> Card:
        made.append(Card(machine(**values)))
        return made[-1]

    yield make
    for each in made:
        for program in each.programs:
            program.kill()


# ---- how long a kernel takes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "launches", "ms"),
    [  # a launch is a kernel and its blocks
        ({}, "(spin(3000000), 1)", 3),
        ({}, "(spin(3000000), 100000)", 3),
        ({"kernel_ns": 5 * MS}, "(spin(0), 1), (spin(1000000), 1)", 1),
        ({"kernel_ns": 5 * MS}, "(kernel('gaia_spin_'), 1), (kernel('gaia_spin_1x'), 1)", 10),
        ({"kernel_ns": 2 * MS}, "(kernel('k'), 7)", 2),
        ({"kernel_ns": MS, "block_ns": MS, "multiprocessors": 4}, "(kernel('k'), 32)", 2),
        ({"kernel_ns": MS, "block_ns": MS, "multiprocessors": 4}, "(kernel('k'), 33)", 3),
        (
            {"block_ns": MS, "multiprocessors": 2, "blocks_per_multiprocessor": 1},
            "(kernel('k'), 5)",
            3,
        ),
        (
            {"block_ns": MS, "each": {0: CardConfig(multiprocessors=1, blocks_per_multiprocessor=1)}},
            "(kernel('k'), 5)",
            5,
        ),
    ],
)
def test_kernels_take_what_their_name_or_their_waves_say(
    card: Callable[..., Card], config: dict[str, object], launches: str, ms: int
) -> None:
    here = card(**config)
    program = here.program()
    program.do(f"for f, grid in [{launches}]: launch(f, 0, grid)")
    program.do("ok(cu.cuCtxSynchronize())")
    assert here.truth.executed(0) == {program.pid: ms * MS}


def test_every_way_to_a_kernel_keeps_its_duration(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    program.do(
        "library = ok(cu.cuLibraryLoadData(b'image', [], [], 0, [], [], 0));"
        "f = ok(cu.cuKernelGetFunction(ok(cu.cuLibraryGetKernel(library, b'gaia_spin_4000000'))));"
        "c = cu.CUlaunchConfig();"
        "c.gridDimX = c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1"
    )
    with here.truth.held(0):
        program.do("launch(f); a = event(); ok(cu.cuLaunchKernelEx(c, f, 0, 0)); b = event()")
        program.do("ok(cu.cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, 0)); d = event()")
    program.do("ok(cu.cuCtxSynchronize())")
    assert program.do("[between(a, b), between(b, d)]") == [pytest.approx(4, abs=0.01)] * 2


def test_multiprocessors_are_reported(machine: Machine) -> None:
    driver = machine(multiprocessors=46, each={1: CardConfig(multiprocessors=7)})
    ask = "ok(cu.cuDeviceGetAttribute(cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, {}))"
    assert run_code(driver, f"start(); print(json.dumps([{ask.format(0)}, {ask.format(1)}]))") == [46, 7]


def test_graph_takes_the_time_of_its_kernels_together(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    program.do("s = ok(cu.cuStreamCreate(1)); f = spin(2000000)")
    program.do(
        "ok(cu.cuStreamBeginCapture(s, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED));"
        "[launch(f, s) for _ in range(5)];"
        "g = ok(cu.cuGraphInstantiate(ok(cu.cuStreamEndCapture(s)), 0))"
    )
    assert here.truth.time(0).executed == {}
    with here.truth.held(0):
        program.do("launch(f); a = event(); ok(cu.cuGraphLaunch(g, s)); b = event(s)")
    program.do("ok(cu.cuEventSynchronize(b))")
    assert program.do("between(a, b)") == pytest.approx(10, abs=0.01)
    assert here.truth.executed(0) == {program.pid: 12 * MS}
    assert here.truth.busy(0)[0] == 12 * MS


# ---- events ----------------------------------------------------------------------------------------------


def test_events_are_ready_when_their_stream_is_there_and_not_before(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    program.do("s = ok(cu.cuStreamCreate(1)); t = ok(cu.cuStreamCreate(1)); f = spin(60000000000)")
    program.do("launch(spin(1000), t); ok(cu.cuStreamSynchronize(t)); launch(f, s); late = event(s)")
    program.do("early = event(t)")
    assert program.do("[code(cu.cuEventQuery(e)) for e in (early, late)]") == [0, 600]
    assert program.do("[code(cu.cuStreamQuery(x)) for x in (t, s, 0)]") == [0, 600, 600]
    assert program.do("code(cu.cuEventElapsedTime(early, late))") == 600
    assert program.do("code(cu.cuEventElapsedTime(early, ok(cu.cuEventCreate(0))))") == 400
    assert program.do("code(cu.cuEventElapsedTime(early, event(t, 2)))") == 400
    program.do("ok(cu.cuEventRecord(late, t))")
    assert program.do("code(cu.cuEventQuery(late))") == 0


OWN_STREAMS = """
import threading
context = ok(cu.cuCtxGetCurrent())
def elsewhere(work):
    def run():
        ok(cu.cuCtxSetCurrent(context)); work()
    thread = threading.Thread(target=run); thread.start(); thread.join()
def ptsz(name, *arguments):
    assert getattr(ctypes.CDLL("libcuda.so.1"), name + "_ptsz")(*arguments) == 0
def launch_own(f): ptsz("cuLaunchKernel", ctypes.c_void_p(int(f)), 1, 1, 1, 1, 1, 1, 0, None, None, None)
def event_own():
    e = ok(cu.cuEventCreate(0)); ptsz("cuEventRecord", ctypes.c_void_p(int(e)), None); return e
"""


@pytest.mark.parametrize(
    ("own_launch", "own_event"), [("launch(f, 2)", "event(2)"), ("launch_own(f)", "event_own()")]
)
def test_each_thread_has_a_default_stream_of_its_own(
    card: Callable[..., Card], own_launch: str, own_event: str
) -> None:
    here = card()
    program = here.program()
    program.do(OWN_STREAMS + "\nf = spin(2000000)")
    with here.truth.held(0):
        program.do(f"{own_launch}; mine = {own_event}; elsewhere(lambda: {own_launch}); again = {own_event}")
        program.do("both = event(0)")
        program.do(f"launch(f, 0); after = {own_event}")
        program.do(f"elsewhere(lambda: globals().update(theirs={own_event}))")
    program.do("ok(cu.cuCtxSynchronize())")
    waits = program.do("[round(between(mine, e)) for e in (mine, again, both, after, theirs)]")
    assert waits == [0, 0, 2, 4, 4], "the legacy stream waits for all of them, and they for it"


def test_many_events_keep_their_times_though_read_late(card: Callable[..., Card]) -> None:
    here = card(alternate_ms=1)
    program, other = here.program(), here.program()
    other.do("launch(spin(60000000000))")
    with here.truth.held(0):
        program.do("f = spin(200000); launch(f); events = [event()]")
        program.do("for _ in range(1000): launch(f); events.append(event())")
    program.do("ok(cu.cuCtxSynchronize())")
    steps = program.do("[between(a, b) for a, b in zip(events, events[1:])]")
    # each kernel takes its 0.2 ms, and every fifth waits for the other's slice besides
    assert {round(step, 2) for step in steps} == {0.2, 1.2}
    assert sum(step > 1 for step in steps) in (199, 200, 201)


def test_kernel_that_does_not_fit_its_slice_is_seen_to_take_the_slices_of_others(
    card: Callable[..., Card],
) -> None:
    here = card(alternate_ms=2)
    program, other = here.program(), here.program()
    other.do("launch(spin(60000000000))")
    program.do("f = spin(20000000)")
    with here.truth.held(0):
        program.do("launch(f); a = event(); launch(f); b = event()")
    program.do("ok(cu.cuEventSynchronize(b))")
    assert program.do("between(a, b)") == pytest.approx(40, abs=0.01)


# ---- several programs on one card --------------------------------------------------------------------------


@pytest.mark.parametrize("depths", [(1000, 1), (1000, 1000), (4, 300)])
def test_alternating_card_shares_evenly_whatever_the_queue_depth(
    card: Callable[..., Card], depths: tuple[int, int]
) -> None:
    here = card(alternate_ms=2)
    programs = [here.program() for _ in depths]
    with here.truth.held(0):
        for program, depth in zip(programs, depths, strict=True):
            program.do(f"f = spin(1000 * 10**9)\nfor _ in range({depth}): launch(f)")
    _, shares = here.window(SECOND // 2)
    assert [shares[program.pid] for program in programs] == [pytest.approx(0.5, abs=0.01)] * 2


def test_alternating_card_lets_nobody_pay_for_the_idle_time_of_another(card: Callable[..., Card]) -> None:
    """However late a program comes back for more, the other never has less than its half."""
    here = card(alternate_ms=2)
    steady, other = here.program(), here.program()
    steady.do("launch(spin(1000 * 10**9))")
    other.do("f = spin(5000000)")
    other.ask("while True: launch(f); ok(cu.cuCtxSynchronize())")
    a = here.until(lambda seen: len(seen.executed) == 2)
    b = here.until(
        lambda seen: seen.at_ns >= a.at_ns + SECOND // 2 and seen.executed[other.pid] > a.executed[other.pid]
    )
    ran = {pid: b.executed[pid] - a.executed[pid] for pid in (steady.pid, other.pid)}
    assert sum(ran.values()) == b.at_ns - a.at_ns == b.busy_ns - a.busy_ns
    assert ran[steady.pid] >= 0.49 * sum(ran.values())


def test_order_of_submission_favours_the_deeper_queue(card: Callable[..., Card]) -> None:
    here = card()
    deep, shallow = here.program(), here.program()
    for program in (deep, shallow):
        program.do("f = spin(2000000); events = []")
    with here.truth.held(0):
        for _ in range(5):  # as if each came back when the other was done
            deep.do("for _ in range(9): launch(f)")
            shallow.do("launch(f); events.append(event())")
    shallow.do("ok(cu.cuCtxSynchronize())")
    assert here.truth.executed(0) == {deep.pid: 90 * MS, shallow.pid: 10 * MS}
    steps = shallow.do("[between(a, b) for a, b in zip(events, events[1:])]")
    assert steps == [pytest.approx(20, abs=0.01)] * 4


@pytest.mark.parametrize("alternate", [0, 2])
def test_killed_program_frees_the_card_from_its_queue(card: Callable[..., Card], alternate: int) -> None:
    here = card(alternate_ms=alternate)
    victim, other = here.program(), here.program()
    began = here.truth.time(0).at_ns
    victim.do("f = spin(1000000000)")
    victim.do(DEEP)
    other.do("launch(spin(5000000)); launch(spin(7000000))")
    before = here.until(lambda seen: seen.executed.get(victim.pid, 0) > 20 * MS)
    assert before.queued[victim.pid] + before.executed[victim.pid] == 2000 * SECOND
    victim.kill()
    other.do("ok(cu.cuCtxSynchronize())")
    after = here.truth.time(0)
    assert after.queued == {}
    assert after.executed[other.pid] == 12 * MS
    # none of it in advance, nothing of the queue at its end
    assert 20 * MS < after.executed[victim.pid] < after.at_ns - began
    assert after.busy_ns == sum(after.executed.values())
    _, shares = here.window(50 * MS)
    assert shares == {victim.pid: 0, other.pid: 0}


def test_waiting_program_notices_that_the_one_before_it_died(card: Callable[..., Card]) -> None:
    here = card()
    victim, other = here.program(), here.program()
    victim.do("launch(spin(4000000000000))")
    other.do("f = spin(1000000)")
    other.ask("launch(f); ok(cu.cuCtxSynchronize())")
    here.until(lambda seen: other.pid in seen.queued)
    victim.kill()
    other.answer()
    assert here.truth.executed(0)[other.pid] == MS


def test_ended_program_takes_its_queue_along_and_keeps_its_time(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    began = here.truth.time(0).at_ns
    program.do("launch(spin(4000000)); ok(cu.cuCtxSynchronize()); launch(spin(4000000000000))")
    program.close()
    after = here.truth.time(0)
    assert after.queued == {}
    assert 4 * MS <= after.executed[program.pid] == after.busy_ns < after.at_ns - began


def test_kills_at_any_moment_lose_nothing_of_the_card(card: Callable[..., Card]) -> None:
    for alternate in (0, 1):
        here = card(alternate_ms=alternate)
        survivor = here.program()
        survivor.do("f = spin(1000)")
        rounds = 0
        for _ in range(8):
            victim = here.program()
            victim.do("f = spin(2000)")
            victim.ask("while True: launch(f); cu.cuEventQuery(event())")
            survivor.do("for _ in range(500): launch(f); event()")
            rounds += 500
            victim.kill()
            survivor.do("ok(cu.cuCtxSynchronize())")
        after = here.until(lambda seen: not seen.queued)
        assert after.executed[survivor.pid] == rounds * 1000
        assert after.busy_ns == sum(after.executed.values())
        survivor.kill()


@pytest.mark.parametrize(
    "call",
    [
        "ok(cu.cuMemcpyDtoH((ctypes.c_char * 8).from_buffer(bytearray(8)), p, 8))",
        "ok(cu.cuMemcpyHtoD(p, bytes(8), 8))",
        "ok(cu.cuMemcpyDtoD(p, p + 64, 8))",
        "ok(cu.cuStreamSynchronize(0))",
        "ok(cu.cuStreamSynchronize(s))",
        "ok(cu.cuStreamWaitEvent(t, event(s), 0)); ok(cu.cuStreamSynchronize(t))",
    ],
)
def test_calls_that_wait_for_the_card_do(card: Callable[..., Card], call: str) -> None:
    here = card()
    program = here.program()
    program.do("p = int(ok(cu.cuMemAlloc(128))); s = ok(cu.cuStreamCreate(0)); t = ok(cu.cuStreamCreate(0))")
    program.do(f"launch(spin(200000000), s); {call}")
    seen = here.truth.time(0)
    assert (dict(seen.executed), dict(seen.queued)) == ({program.pid: 200 * MS}, {})


def test_cards_wait_for_each_others_events(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    program.do("launch(spin(100000000)); e = event(); start(1); t = ok(cu.cuStreamCreate(0))")
    program.do("ok(cu.cuStreamWaitEvent(t, e, 0)); launch(spin(1000), t); ok(cu.cuStreamSynchronize(t))")
    assert here.truth.executed(0) == {program.pid: 100 * MS}
    assert here.truth.executed(1) == {program.pid: 1000}


def test_stopped_program_still_runs_what_it_queued(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    program.do("launch(spin(30000000))")
    os.kill(program.pid, signal.SIGSTOP)
    here.until(lambda seen: seen.executed.get(program.pid) == 30 * MS)


def test_full_queue_of_the_card_holds_the_next_launch(card: Callable[..., Card]) -> None:
    here = card()
    one, two = here.program(), here.program()
    one.do("f = spin(1000)")
    two.do("f = spin(1000)")
    for _ in range(4):
        one.ask("for _ in range(1500): launch(f)")
        two.ask("for _ in range(1500): launch(f)")
    for program in (one, two):
        for _ in range(4):
            program.answer()
        program.do("ok(cu.cuCtxSynchronize())")
    assert here.truth.executed(0) == {one.pid: 6 * MS, two.pid: 6 * MS}


@pytest.mark.parametrize("alternate", [0, 2])
def test_held_card_takes_work_and_begins_with_it_afterwards(
    card: Callable[..., Card], alternate: int
) -> None:
    here = card(alternate_ms=alternate)
    one, two = here.program(), here.program()
    one.do("launch(spin(5000000))")
    here.until(lambda seen: seen.executed.get(one.pid) == 5 * MS)
    with here.truth.held(0):
        two.do("launch(spin(3000000))")
        one.do("launch(spin(7000000)); start(1); launch(spin(1000000)); ok(cu.cuCtxSynchronize())")
        assert here.truth.executed(1) == {one.pid: MS}, "other cards go on"
        two.ask("ok(cu.cuCtxSynchronize())")
        later = here.window(20 * MS)[0]
        assert later.queued == {one.pid: 7 * MS, two.pid: 3 * MS}
        assert later.executed == {one.pid: 5 * MS, two.pid: 0}
    two.answer()
    after = here.until(lambda seen: not seen.queued)
    assert after.executed == {one.pid: 12 * MS, two.pid: 3 * MS}
    assert after.busy_ns == 15 * MS


def test_held_card_lets_go_of_the_killed(card: Callable[..., Card]) -> None:
    here = card()
    victim, other = here.program(), here.program()
    with here.truth.held(0):
        victim.do("launch(spin(4000000000000))")
        other.do("launch(spin(2000000))")
        victim.kill()
        assert here.truth.time(0).queued == {other.pid: 2 * MS}
    other.do("ok(cu.cuCtxSynchronize())")
    assert here.truth.executed(0) == {other.pid: 2 * MS}


def test_cards_have_timelines_of_their_own(card: Callable[..., Card]) -> None:
    here = card()
    program = here.program()
    program.do("launch(spin(4000000000000)); start(1); launch(spin(3000000)); ok(cu.cuCtxSynchronize())")
    assert here.truth.executed(1) == {program.pid: 3 * MS}
    assert here.truth.time(0).queued[program.pid] > 0
    with pytest.raises(ValueError, match="0 to 1"):
        here.truth.time(2)


@pytest.mark.parametrize(
    ("family", "call"),
    [
        ("event_create", "cu.cuEventCreate(0)"),
        ("event_record", "cu.cuEventRecord(e, 0)"),
        ("event_query", "cu.cuEventQuery(e)"),
        ("event_query", "cu.cuEventElapsedTime(e, e)"),
        ("launch", "cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)"),
    ],
)
def test_events_and_launches_fail_when_told(card: Callable[..., Card], family: str, call: str) -> None:
    here = card()
    program = here.program()
    program.do("e = event(); f = spin(1000)")
    here.truth.fail(family, 999, 2)
    assert [program.do(f"code({call})") for _ in range(3)] == [999, 999, 0]
