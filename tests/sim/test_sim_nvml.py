"""The simulated NVML: nvidia-ml-py, nvitop and gpustat run on it as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gaia_plugin.sim import CardConfig, Level, Link, Simulation
from gaia_plugin.units import GIB, MIB
from tests.sim.sim_client import Client, environment, run_code

CONTEXT = 300 * MIB
NVML = """
import pynvml as nv
nv.nvmlInit()
cards = [nv.nvmlDeviceGetHandleByIndex(i) for i in range(nv.nvmlDeviceGetCount())]
"""
Start = Callable[..., Client]


def test_both_libraries_know_the_same_cards(driver: Path) -> None:
    found = run_code(
        driver,
        NVML
        + """
ok(cu.cuInit(0))
rows = []
for i, card in enumerate(cards):
    raw = bytes(ok(cu.cuDeviceGetUuid(i)).bytes).hex()
    uuid = nv.nvmlDeviceGetUUID(card)
    rows.append([uuid.replace("GPU-", "").replace("-", "") == raw, len(uuid),
        nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetHandleByUUID(uuid)),
        nv.nvmlDeviceGetPciInfo(card).busId, nv.nvmlDeviceGetName(card),
        nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetHandleByPciBusId(nv.nvmlDeviceGetPciInfo(card).busId)),
        ok(cu.cuDeviceGetPCIBusId(13, i)).rstrip(b"\\0").decode()])
print(json.dumps(rows))
""",
    )
    name = "Gaia Simulated 24GB"
    assert found == [
        [True, 40, 0, "00000000:01:00.0", name, 0, "0000:01:00.0"],
        [True, 40, 1, "00000000:02:00.0", name, 1, "0000:02:00.0"],
    ]


def test_uuids_stay_and_differ_between_directories(machine: Callable[..., Path], tmp_path: Path) -> None:
    ask = NVML + "print(json.dumps([nv.nvmlDeviceGetUUID(c) for c in cards]))"
    first = run_code(machine(), ask)
    assert run_code(machine(), ask) == first
    from gaia_plugin.sim import SimConfig, make_sim

    other = make_sim(tmp_path / "other", SimConfig(state=tmp_path / "other-state"))
    assert not set(first) & set(run_code(other, ask))


def test_memory_and_processes_are_the_same_in_both_views(client: Start, driver: Path) -> None:
    program = client()
    program.do("start(); ok(cu.cuMemAlloc(1000 * MIB))")
    ask = (
        NVML
        + """
one = nv.nvmlDeviceGetMemoryInfo(cards[0])
two = nv.nvmlDeviceGetMemoryInfo(cards[0], version=nv.nvmlMemory_v2)
print(json.dumps([[one.total, one.used, one.free], [two.total, two.reserved, two.used, two.free],
    [[p.pid, p.usedGpuMemory] for p in nv.nvmlDeviceGetComputeRunningProcesses(cards[0])],
    [[p.pid, p.usedGpuMemory] for p in nv.nvmlDeviceGetComputeRunningProcesses(cards[1])]]))
"""
    )
    used, reserved = CONTEXT + 1000 * MIB, 512 * MIB
    free = 24 * GIB - used - reserved
    assert run_code(driver, ask) == [
        [24 * GIB, used + reserved, free],
        [24 * GIB, reserved, used, free],
        [[program.pid, used]],
        [],
    ]
    assert program.do("ok(cu.cuMemGetInfo())") == [free, 24 * GIB - reserved]
    program.kill()
    assert run_code(driver, ask)[1] == [24 * GIB, reserved, 0, 24 * GIB - reserved]


def test_old_record_of_processes_has_16_bytes(client: Start, driver: Path) -> None:
    programs = [client(), client()]
    for program in programs:
        program.do("start()")
    found = run_code(
        driver,
        NVML
        + """
class Record(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]
records, count = (Record * 4)(), ctypes.c_uint(4)
nv.nvmlLib.nvmlDeviceGetComputeRunningProcesses(cards[0], ctypes.byref(count), records)
room = ctypes.c_uint(1)
short = nv.nvmlLib.nvmlDeviceGetComputeRunningProcesses(cards[0], ctypes.byref(room), records)
pids = sorted(r.pid for r in records[:count.value])
print(json.dumps([pids, [r.memory for r in records[:2]], short, room.value]))
""",
    )
    assert found == [sorted(p.pid for p in programs), [CONTEXT, CONTEXT], 7, 2]


def test_idle_processes_have_no_sample_and_busy_ones_do(machine: Callable[..., Path]) -> None:
    driver = machine(kernel_ns=10_000_000_000)  # there is always some left
    program = Client(driver)
    try:
        program.do("start()")
        ask = (
            NVML
            + """
import time
def use():
    try:
        return [[s.pid, s.smUtil > 50] for s in nv.nvmlDeviceGetProcessUtilization(cards[0], 0)]
    except nv.NVMLError as trouble:
        return trouble.value
seen = [use()]
"""
        )
        assert run_code(driver, ask + "print(json.dumps(seen))") == [6]
        program.do("f = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(b'image')), b'k'))")
        program.do("[ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)) for _ in range(20000)]")
        busy = run_code(
            driver,
            ask
            + "while use() == 6 or not use()[0][1]: pass\n"
            + "print(json.dumps([use(), nv.nvmlDeviceGetUtilizationRates(cards[0]).gpu > 50]))",
        )
        assert busy == [[[program.pid, True]], True]
        assert Simulation(driver).processes()[0].launches == (20000, 0)
    finally:
        program.kill()


def test_missing_features_are_not_supported_rather_than_missing(driver: Path) -> None:
    found = run_code(
        driver,
        NVML
        + """
def answer(call, *values):
    try: return call(*values) and None
    except nv.NVMLError as trouble: return trouble.value
print(json.dumps([answer(nv.nvmlDeviceGetMigMode, cards[0]), answer(nv.nvmlDeviceGetEccMode, cards[0]),
    answer(nv.nvmlDeviceGetSerial, cards[0]), answer(nv.nvmlDeviceGetHandleByIndex, 7),
    answer(nv.nvmlDeviceGetHandleByUUID, "GPU-00000000-0000-0000-0000-000000000000"),
    answer(nv.nvmlDeviceGetNvLinkState, cards[0], 0), nv.nvmlSystemGetCudaDriverVersion(),
    nv.nvmlDeviceGetCudaComputeCapability(cards[0]), nv.nvmlErrorString(9)]))
""",
    )
    assert found == [3, 3, 3, 2, 6, 3, 13000, [8, 9], "Driver Not Loaded"]


def test_every_function_of_nvidia_ml_py_resolves(driver: Path) -> None:
    found = run_code(
        driver,
        """
import pynvml, re
library = ctypes.CDLL("libnvidia-ml.so.1")
names = set(re.findall(r'_nvmlGetFunctionPointer\\("(\\w+)"', open(pynvml.__file__).read()))
print(json.dumps([len(names) > 300, [n for n in sorted(names) if not hasattr(library, n)]]))
""",
    )
    assert found == [True, []]


def test_eight_cards_are_joined_as_configured(machine: Callable[..., Path]) -> None:
    driver = machine(
        cards=8,
        each={i: CardConfig(numa=i // 4, pcie_switch=i // 2) for i in range(8)},
        links=(Link(0, 1, nvlinks=4), Link(0, 7, nvlinks=2, level=Level.HOSTBRIDGE), Link(2, 3, p2p=False)),
    )
    found = run_code(
        driver,
        NVML
        + """
def level(a, b): return nv.nvmlDeviceGetTopologyCommonAncestor(cards[a], cards[b])
def links(a):
    found = []
    for i in range(18):
        try:
            if nv.nvmlDeviceGetNvLinkState(cards[a], i):
                bus = nv.nvmlDeviceGetNvLinkRemotePciInfo(cards[a], i).busId
                found.append(nv.nvmlDeviceGetIndex(nv.nvmlDeviceGetHandleByPciBusId(bus)))
        except nv.NVMLError: break
    return found
def p2p(a, b, what): return nv.nvmlDeviceGetP2PStatus(cards[a], cards[b], what)
ok(cu.cuInit(0))
print(json.dumps([[level(0, 1), level(0, 2), level(0, 4), level(0, 7)], links(0), links(1), links(2),
    [p2p(0, 1, 2), p2p(0, 2, 2), p2p(0, 2, 0), p2p(2, 3, 0)],
    [nv.nvmlDeviceGetNumaNodeId(c) for c in cards], list(nv.nvmlDeviceGetMemoryAffinity(cards[5], 1, 0)),
    [ok(cu.cuDeviceCanAccessPeer(0, 1)), ok(cu.cuDeviceCanAccessPeer(2, 3))]]))
""",
    )
    assert found == [
        [10, 40, 50, 30],
        [1, 1, 1, 1, 7, 7],
        [0, 0, 0, 0],
        [],
        [0, 5, 0, 1],
        [0, 0, 0, 0, 1, 1, 1, 1],
        [2],
        [1, 0],
    ]


def test_gpustat_runs_unmodified(client: Start, driver: Path) -> None:
    program = client()
    program.do("start(); ok(cu.cuMemAlloc(GIB))")
    done = subprocess.run(
        [sys.executable, "-m", "gpustat", "--json"],
        env=environment(driver),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cards = json.loads(done.stdout)["gpus"]
    assert [card["memory.used"] for card in cards] == [300 + 1024, 0]
    assert [each["pid"] for each in cards[0]["processes"]] == [program.pid]


def test_nvitop_runs_unmodified(client: Start, driver: Path) -> None:
    program = client()
    program.do("start(); ok(cu.cuMemAlloc(GIB))")
    done = subprocess.run(
        [sys.executable, "-m", "nvitop", "-1", "--no-unicode", "--ascii"],
        env=environment(driver, COLUMNS="120"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Gaia Simulated 24GB" in done.stdout
    assert str(program.pid) in done.stdout


def test_numba_makes_a_context_and_a_device_array(driver: Path) -> None:
    found = run_code(
        driver,
        """
import numpy
from numba import cuda
a = numpy.arange(1000, dtype=numpy.float32)
d = cuda.to_device(a)
free, total = cuda.current_context().get_memory_info()
print(json.dumps([bool((d.copy_to_host() == a).all()), int(free), len(cuda.gpus)]))
""",
    )
    assert found == [True, 24 * GIB - 512 * MIB - CONTEXT - 4000, 2]
