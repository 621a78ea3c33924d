"""Programs in pid namespaces of their own, as in containers, on one simulated machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gaia_plugin.sim import Simulation
from gaia_plugin.units import GIB, MIB
from tests.sim.sim_client import Client

CONTEXT = 300 * MIB
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
NVML = """
import pynvml as nv
nv.nvmlInit()
card = nv.nvmlDeviceGetHandleByIndex(0)
def pids():
    return sorted(p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(card))
def busy():
    try:
        return sorted({s.pid for s in nv.nvmlDeviceGetProcessUtilization(card, 0)})
    except nv.NVMLError_NotFound:
        return []
"""


def child_of(pid: int) -> int:
    """The only child: of `unshare`, the container's first process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.fixture
def container(driver: Path) -> Iterator[Callable[[], Client]]:
    """Start programs that are process 1 of a namespace; `host` is their pid outside of it."""
    started: list[Client] = []

    def start() -> Client:
        started.append(Client(driver, before=CONTAINER))
        assert started[-1].do("os.getpid()") == 1
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()


def test_memory_of_another_namespace_stays_taken_until_its_process_ends(
    container: Callable[[], Client], client: Callable[..., Client], truth: Simulation
) -> None:
    inside, outside = container(), client()
    inside.do("start(); ok(cu.cuMemAlloc(20 * GIB))")
    outside.do("start()")
    # both sides sweep the dead; neither may take the other for dead
    assert outside.do("code(cu.cuMemAlloc(20 * GIB))") == 2
    assert inside.do("code(cu.cuMemAlloc(20 * GIB))") == 2
    assert truth.used()[0] == 20 * GIB + 2 * CONTEXT
    inside.kill()
    assert until(lambda: truth.used()[0], CONTEXT) == CONTEXT
    assert outside.do("code(cu.cuMemAlloc(20 * GIB))") == 0


def test_processes_are_told_by_their_pid_as_the_asker_sees_it(
    container: Callable[[], Client], client: Callable[..., Client], truth: Simulation
) -> None:
    one, two, reader = container(), container(), client()
    hosts = sorted(child_of(each.process.pid) for each in (one, two))
    for each in (one, two):
        each.do("start()")
    reader.do(NVML)
    assert reader.do("pids()") == hosts
    assert sorted(process.pid for process in truth.processes()) == hosts
    # who looks from inside of one sees itself, and not the other
    one.do(NVML)
    assert one.do("pids()") == [1]


def test_time_is_told_by_the_same_pids(
    container: Callable[[], Client], client: Callable[..., Client], truth: Simulation
) -> None:
    one, two, reader = container(), container(), client()
    hosts = sorted(child_of(each.process.pid) for each in (one, two))
    reader.do(NVML)
    for each in (one, two):
        each.do(WORK)
    assert until(lambda: sorted(truth.executed(0)), hosts) == hosts
    assert until(lambda: reader.do("busy()"), hosts) == hosts


WORK = """
import threading
start()
module = ok(cu.cuModuleLoadData(b"gaia"))
spin = ok(cu.cuModuleGetFunction(module, b"gaia_spin_5000000"))
def keep_busy():
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(0))))
    while True:
        ok(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
        ok(cu.cuCtxSynchronize())
threading.Thread(target=keep_busy, daemon=True).start()
"""


def until(look: Callable[[], object], wanted: object, seconds: float = 60) -> object:
    """Look until it is as wanted, or the time is over; return what was seen last."""
    deadline = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen
