"""The inventory reads the simulated driver as it reads a real one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Level, Tie, Xid
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.placement import CardState, Request, place
from gaia_plugin.shares import Share
from gaia_plugin.sim import Simulation
from gaia_plugin.units import GIB, MIB

LINKED = """
cards = 8
link = 0 1 2
link = 2 3 4
link = 4 5 1
level = 6 7 single
level = 4 6 hostbridge
card.6.numa = 1
card.7.numa = 1
"""

HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1] + "/libcuda.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
answers = [
    cuda.cuInit(0),
    cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 1),
    cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30)),
]
print(answers, flush=True)
sys.stdin.read()
"""

Simulated = Callable[[str], Path]


@pytest.fixture
def simulated(tmp_path: Path) -> Simulated:
    """Return a function that makes a simulated driver of its own from the text of its settings."""

    def make(settings: str) -> Path:
        directory = tmp_path / "driver"
        shutil.copytree(str(files("gaia_plugin") / "lib" / "sim"), directory)
        (directory / "sim.conf").write_text(f"{settings}\nstate = {tmp_path / 'state'}\n")
        return directory

    return make


def test_simulated_cards_have_uuid_size_and_reserve(simulated: Simulated) -> None:
    with Nvml(simulated("cards = 3\nmemory = 17179869184\nreserved = 268435456")) as nvml:
        cards = nvml.cards()
    assert len({card.uuid for card in cards}) == 3
    assert {(card.memory_total, card.memory_reserved, card.healthy) for card in cards} == {
        (16 * GIB, 256 * MIB, True)
    }


def test_a_process_shows_up_with_its_context_and_memory_and_goes(simulated: Simulated) -> None:
    directory = simulated("cards = 2\ncontext = 314572800")
    with Nvml(directory) as nvml:
        idle, busy = (card.uuid for card in nvml.cards())
        assert nvml.processes(busy) == {}
        program = [sys.executable, "-c", HOLDER, str(directory)]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert holder.stdout is not None
                assert holder.stdout.readline() == "[0, 0, 0]\n"
                assert nvml.processes(busy) == {holder.pid: GIB + 300 * MIB}
                assert nvml.memory_used(busy) == GIB + 300 * MIB
                assert nvml.memory_used(idle) == 0
                holder.communicate("")
            finally:
                holder.kill()
        assert nvml.processes(busy) == {}
        assert nvml.memory_used(busy) == 0


def test_link_mode_takes_the_best_linked_cards_of_a_simulated_machine(simulated: Simulated) -> None:
    with Nvml(simulated(LINKED)) as nvml:
        cards, topology = nvml.cards(), nvml.topology()
    uuids = [card.uuid for card in cards]
    assert topology.tie(uuids[2], uuids[3]) == Tie(Level.NVLINK, 4)
    assert topology.level(uuids[6], uuids[7]) is Level.SWITCH
    assert topology.level(uuids[4], uuids[6]) is Level.NUMA
    whole = Share(94, 100)
    states = [CardState(card.uuid, card.name, whole, whole) for card in cards]
    taken = {one.card for one in place(Request(None, 200), states, topology)}
    assert taken == {uuids[2], uuids[3]}
    left = [state for state in states if state.uuid not in taken]
    assert {one.card for one in place(Request(None, 200), left, topology)} == {uuids[0], uuids[1]}


def test_cards_on_a_simulated_nvswitch_are_all_linked(simulated: Simulated) -> None:
    with Nvml(simulated("cards = 4\nnvswitch = 12")) as nvml:
        topology = nvml.topology()
        uuids = [card.uuid for card in nvml.cards()]
    assert topology.groups(Level.NVLINK, uuids) == (tuple(sorted(uuids)),)
    assert topology.tie(uuids[0], uuids[3]) == Tie(Level.NVLINK, 12)


def test_faults_of_simulated_cards_are_told_once_each_with_their_card(simulated: Simulated) -> None:
    directory = simulated("cards = 2")
    with Nvml(directory) as nvml:
        first, second = (card.uuid for card in nvml.cards())
        simulation = Simulation(directory)
        simulation.xid(0, 79)  # nobody listened yet
        assert nvml.xid(0.0) is None
        for code in (13, 48, 31):
            simulation.xid(1, code)
        simulation.xid(0, 74)
        found = {nvml.xid(10.0) for _ in range(4)}
        assert found == {Xid(first, 74), Xid(second, 13), Xid(second, 48), Xid(second, 31)}
        assert nvml.xid(0.0) is None
        with pytest.raises(ValueError, match="no card 2"):
            simulation.xid(2, 79)


def test_a_driver_that_fails_to_tell_is_listened_to_anew(simulated: Simulated) -> None:
    directory = simulated("cards = 1")
    with Nvml(directory) as nvml:
        (card,) = nvml.cards()
        assert nvml.xid(0.0) is None
        simulation = Simulation(directory)
        simulation.fail("nvml", 999)
        with pytest.raises(Refusal, match="does not tell of faults"):
            nvml.xid(0.0)
        assert nvml.xid(0.0) is None
        simulation.xid(0, 79)
        assert nvml.xid(10.0) == Xid(card.uuid, 79)
