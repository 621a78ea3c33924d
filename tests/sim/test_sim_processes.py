"""Many processes on one simulated machine: what is true after kills, forks, races and faults."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.sim import Simulation
from gaia_plugin.units import GIB, MIB
from tests.sim.sim_client import Client, run_code

CONTEXT = 300 * MIB
USABLE = 24 * GIB - 512 * MIB
Start = Callable[..., Client]


def test_memory_of_a_killed_process_is_free_at_once(client: Start, truth: Simulation) -> None:
    victim, other = client(), client()
    victim.do("start(); ok(cu.cuMemAlloc(20 * GIB))")
    other.do("start()")
    assert other.do("code(cu.cuMemAlloc(20 * GIB))") == 2
    victim.kill()
    assert truth.used() == (CONTEXT, 0)
    assert other.do("code(cu.cuMemAlloc(20 * GIB))") == 0
    assert [process.pid for process in truth.processes()] == [other.pid]


def test_zombie_holds_nothing(client: Start, truth: Simulation) -> None:
    victim, other = client(), client()
    victim.do("start(); ok(cu.cuMemAlloc(20 * GIB))")
    other.do("start()")
    victim.process.send_signal(signal.SIGKILL)
    # the pipe closes when the process is dead; nobody has waited for it, so it is a zombie now
    assert victim.process.stdout is not None
    assert victim.process.stdout.read() == ""
    while victim.pid in [process.pid for process in truth.processes()]:
        pass  # between the pipe's end and the zombie lie microseconds
    assert other.do("code(cu.cuMemAlloc(20 * GIB))") == 0


def test_ended_process_leaves_nothing(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start(); ok(cu.cuMemAlloc(GIB))")
    program.close()
    assert truth.used() == (0, 0)
    assert truth.processes() == ()


def test_kills_at_any_moment_leave_no_lock_and_no_byte(client: Start, truth: Simulation) -> None:
    random_moments = random.Random(7)
    survivor = client()
    survivor.do("start()")
    loop = "start()\nwhile True:\n    p = ok(cu.cuMemAlloc(MIB)); ok(cu.cuMemFree(p))"
    for _ in range(8):
        victim = client()
        victim.do("pass")
        victim.ask(loop)
        while truth.used()[0] < 2 * CONTEXT:
            assert victim.process.poll() is None
        survivor.do(
            f"[ok(cu.cuMemFree(ok(cu.cuMemAlloc(MIB)))) for _ in range({random_moments.randrange(900)})]"
        )
        victim.kill()
        assert survivor.do("code(cu.cuMemAlloc(MIB))") == 0
    assert truth.used()[0] == CONTEXT + 8 * MIB
    assert survivor.do("ok(cu.cuMemGetInfo())")[0] == USABLE - CONTEXT - 8 * MIB


def test_racing_processes_never_exceed_the_card(client: Start, truth: Simulation) -> None:
    programs = [client() for _ in range(4)]
    for program in programs:
        program.do("start()")
    size = (USABLE - 4 * CONTEXT) // 3
    for _ in range(10):
        for program in programs:
            program.ask(f"got = cu.cuMemAlloc({size})")
        for program in programs:
            program.answer()
        codes = [program.do("code(got)") for program in programs]
        assert sorted(codes) == [0, 0, 0, 2]
        for program, code in zip(programs, codes, strict=True):
            if code == 0:
                program.do("ok(cu.cuMemFree(got[1]))")
    assert truth.peak()[0] <= USABLE
    assert truth.used()[0] == 4 * CONTEXT


def test_delay_lies_before_the_effect_and_holds_nobody_up(client: Start, truth: Simulation) -> None:
    slow, fast = client(), client()
    slow.do("start()")
    fast.do("start()")
    truth.delay("alloc", 3600 * 10**9)
    slow.ask("code(cu.cuMemAlloc(GIB))")
    while True:  # until it sleeps inside the call
        state = Path(f"/proc/{slow.pid}/wchan").read_text()
        if "nanosleep" in state or "hrtimer" in state:
            break
    assert fast.do("code(cu.cuMemAllocAsync(GIB, 0))") == 0
    assert truth.used()[0] == 2 * CONTEXT + GIB, "the slow one has not taken anything yet"
    truth.delay("alloc", 0)  # an hour is over when it is taken back
    assert slow.answer() == 0
    assert truth.used()[0] == 2 * CONTEXT + 2 * GIB


@pytest.mark.parametrize(
    ("family", "call"),
    [
        ("alloc", "cu.cuMemAlloc(MIB)"),
        ("alloc", "cu.cuMemAllocPitch(100, 100, 4)"),
        ("alloc", "cu.cuMemAllocManaged(100, 1)"),
        ("pool", "cu.cuMemAllocAsync(MIB, 0)"),
        ("context", "cu.cuDevicePrimaryCtxRetain(1)"),
        ("info", "cu.cuMemGetInfo()"),
        ("free", "cu.cuMemFree(p)"),
        ("sync", "cu.cuCtxSynchronize()"),
    ],
)
def test_injected_faults_change_nothing_but_the_answer(
    client: Start, truth: Simulation, family: str, call: str
) -> None:
    program = client()
    program.do("start(); p = ok(cu.cuMemAlloc(MIB))")
    before = truth.used()
    truth.fail(family, 700, 2)
    assert [program.do(f"code({call})") for _ in range(3)] == [700, 700, 0]
    truth.fail(family, 2)
    truth.clear()
    assert truth.pending_failures(family) == 0
    assert before[0] <= truth.peak()[0]


def test_refused_calls_leave_the_account_alone(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start()")
    truth.fail("alloc", 2)
    assert program.do("code(cu.cuMemAlloc(MIB))") == 2
    assert truth.used() == (CONTEXT, 0)
    with pytest.raises(ValueError, match="alloc, free, pool"):
        truth.fail("nothing", 1)


def test_forked_child_has_no_cuda_until_it_initialises(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start(); p = ok(cu.cuMemAlloc(GIB)); ok(cu.cuMemsetD8(p, 5, 1000))")
    child = """
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    seen = [code(cu.cuMemGetInfo()), code(cu.cuMemFree(p)), code(cu.cuCtxGetCurrent())]
    seen += [code(cu.cuInit(0)), code(cu.cuMemAlloc(1)), code(cu.cuMemFree(p))]
    start()
    q = ok(cu.cuMemAlloc(2 * GIB)); back = bytearray(8)
    ok(cu.cuMemcpyDtoH((ctypes.c_char * 8).from_buffer(back), q, 8))
    seen += [list(back)]
    os.write(write, json.dumps(seen).encode())
    signal.pause()
"""
    program.do("import signal")
    program.do(child)
    seen = program.do("json.loads(os.read(read, 1000))")
    assert seen == [3, 3, 3, 0, 201, 1, [0] * 8]
    assert truth.used()[0] == 2 * CONTEXT + 3 * GIB
    program.do("os.kill(pid, 9); os.waitpid(pid, 0)")
    assert truth.used()[0] == CONTEXT + GIB


def test_child_that_only_ends_takes_nothing_from_its_parent(client: Start, truth: Simulation) -> None:
    program = client()
    program.do("start(); p = ok(cu.cuMemAlloc(GIB))")
    program.do(
        "import multiprocessing as m; c = m.get_context('fork').Process(target=int); c.start(); c.join()"
    )
    assert truth.used()[0] == CONTEXT + GIB
    assert program.do("code(cu.cuMemFree(p))") == 0


def test_program_that_execs_another_gives_its_memory_back(client: Start, truth: Simulation) -> None:
    program, other = client(), client()
    program.do("start(); ok(cu.cuMemAlloc(20 * GIB))")
    other.do("start()")
    program.ask("os.execvp('cat', ['cat'])")
    while Path(f"/proc/{program.pid}/comm").read_text() != "cat\n":
        pass
    assert other.do("code(cu.cuMemAlloc(20 * GIB))") == 0


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, [0, 1, 2, 3]),
        ("2,3", [2, 3]),
        ("1", [1]),
        ("3,0", [3, 0]),
        (" 3 , 0 ", [3, 0]),
        ("1,9,0", [1]),
        ("1,-1,0", [1]),
        ("uuid:2", [2]),
        ("uuid:2,uuid:0", [2, 0]),
        ("prefix:2", [2]),
        ("GPU-", []),
        ("", []),
        ("0,0", []),
        ("no", []),
    ],
)
def test_visible_devices_are_the_ones_named_in_their_order(
    machine: Callable[..., Path], visible: str | None, cards: list[int]
) -> None:
    driver = machine(cards=4)
    each = "bytes(ok(cu.cuDeviceGetUuid(i)).bytes).hex() for i in range(ok(cu.cuDeviceGetCount()))"
    ask = f"print(json.dumps([{each}]))"
    uuids = run_code(driver, f"ok(cu.cuInit(0)); {ask}")
    if visible is None:
        assert len(set(uuids)) == 4
        return
    for index, raw in enumerate(uuids):
        text = f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
        visible = visible.replace(f"uuid:{index}", text).replace(f"prefix:{index}", text[:10])
    ask = f"r = code(cu.cuInit(0)); print('[100]' if r == 100 else '') if r else None\nif r == 0: {ask}"
    found = run_code(driver, ask, CUDA_VISIBLE_DEVICES=visible)
    assert found == ([uuids[card] for card in cards] or [100])
