"""Making simulated machines, changing them, and machines that cannot work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.sim import CardConfig, Link, SimConfig, Simulation, default_sim, make_sim, probe
from gaia_plugin.sim.probe import state_file
from gaia_plugin.units import GIB
from tests.sim.sim_client import Client, run_code
from tests.support.demo import until

START = "print(json.dumps([code(cu.cuInit(0))]))"
NVML = """
import pynvml
try: pynvml.nvmlInit(); print("[0]")
except pynvml.NVMLError as trouble: print([trouble.value])
"""


def test_making_it_again_disturbs_nobody(client: Callable[..., Client], driver: Path, tmp_path: Path) -> None:
    program = client()
    program.do("start()")
    before = {path.name: path.stat().st_ino for path in driver.iterdir()}
    make_sim(driver, SimConfig(state=tmp_path / "state"))
    assert {path.name: path.stat().st_ino for path in driver.iterdir()} == before
    assert program.do("code(cu.cuMemAlloc(GIB))") == 0


def test_cards_do_not_change_under_running_programs(
    client: Callable[..., Client], driver: Path, tmp_path: Path
) -> None:
    program = client()
    program.do("start()")
    other = SimConfig(cards=3, state=tmp_path / "state")
    with pytest.raises(Unusable, match=f"process {program.pid}"):
        make_sim(driver, other)
    assert program.do("code(cu.cuMemAlloc(GIB))") == 0
    program.close()
    make_sim(driver, other)
    assert len(Simulation(driver).used()) == 3


def test_default_one_is_made_once_and_keeps_its_cards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAIA_STATE", str(tmp_path / "root"))
    where = default_sim()
    assert where == tmp_path / "root" / "sim-driver"
    assert sorted(path.name for path in where.iterdir() if path.name != ".lock") == [
        "libcuda.so",
        "libcuda.so.1",
        "libnvidia-ml.so",
        "libnvidia-ml.so.1",
        "sim.conf",
    ]
    make_sim(where, SimConfig(cards=5))
    assert len(Simulation(default_sim()).used()) == 5
    default_sim()
    assert not probe.state_file(where).exists()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (SimConfig(cards=0), "from 1 to 16"),
        (SimConfig(cards=17), "from 1 to 16"),
        (SimConfig(memory=GIB, reserved=GIB), "nothing left"),
        (SimConfig(name="two\nlines"), "plain characters"),
        (SimConfig(links=(Link(0, 5, nvlinks=1),)), "0 to 1"),
        (SimConfig(links=(Link(0, 1, nvlinks=19),)), "at most 18"),
        (SimConfig(each={4: CardConfig(numa=1)}), "no card 4"),
        (SimConfig(each={1: CardConfig(uuid="GPU-1")}), "line 10"),
        (SimConfig(state=Path("/nowhere/at/all")), "No such file"),
    ],
)
def test_machine_that_cannot_be_is_refused_in_a_sentence(
    tmp_path: Path, config: SimConfig, sentence: str
) -> None:
    with pytest.raises(Unusable, match=sentence):
        make_sim(tmp_path / "driver", config)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"something else entirely", None])
def test_state_that_cannot_be_used_means_no_device(
    driver: Path, tmp_path: Path, content: bytes | None
) -> None:
    state = tmp_path / "state"
    if content is None:
        state.mkdir()
    elif content:
        state.write_bytes(content)
    expected = [[0], [0]] if content == b"" else [[100], [9]]
    assert [run_code(driver, START), run_code(driver, NVML)] == expected
    if content != b"":
        with pytest.raises(Unusable, match=str(state)):
            Simulation(driver)


def test_state_file_goes_when_nobody_uses_it_and_not_before(
    client: Callable[..., Client], driver: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    assert not state.exists()
    program = client()
    program.do("start()")
    probe.state_file(driver)  # comes and goes while the program runs
    assert state.exists()
    program.close()
    assert state.exists()  # programs leave it; whoever watches removes it
    truth = Simulation(driver)
    probe.state_file(driver)
    assert state.exists()
    del truth
    probe.state_file(driver)
    assert not state.exists()


def test_child_keeps_the_state_file_of_its_parent(
    client: Callable[..., Client], driver: Path, tmp_path: Path
) -> None:
    program = client()
    program.do("start()")
    child = program.do("os.fork() or __import__('signal').pause()")
    program.kill()
    try:
        probe.state_file(driver)
        assert (tmp_path / "state").exists()
    finally:
        os.kill(child, signal.SIGKILL)
    until(lambda: probe.state_file(driver) and not (tmp_path / "state").exists())


def test_programs_that_come_and_go_never_see_two_machines(driver: Path, tmp_path: Path) -> None:
    """A program that starts while others remove the file never works on one that is gone."""
    code = "\n".join(
        (
            "import ctypes, sys",
            "library = ctypes.CDLL(sys.argv[1])",
            "for _ in range(1000):",
            "    assert library.gaia_sim_problem() == 0",
            "    assert '(deleted)' not in open('/proc/self/maps').read()",
            "    library.gaia_sim_leave()",
        )
    )
    churn = [
        subprocess.Popen([sys.executable, "-S", "-c", code, driver / "libnvidia-ml.so.1"]) for _ in range(3)
    ]
    try:
        while any(each.poll() is None for each in churn):
            held = Simulation(driver)
            assert held.state.stat().st_ino == Simulation(driver).state.stat().st_ino
            held.fail("alloc", 1, 7)
            assert Simulation(driver).pending_failures("alloc") == 7
            del held
    finally:
        for each in churn:
            each.kill()
    assert [each.wait() for each in churn] == [0, 0, 0]
    probe.state_file(driver)
    assert not (tmp_path / "state").exists()


def test_line_that_is_not_understood_means_no_device(driver: Path) -> None:
    (driver / "sim.conf").write_text("cards = 2\ncolour = blue\n")
    assert run_code(driver, START) == [100]
    with pytest.raises(Unusable, match=r"line 2.*colour"):
        Simulation(driver)


def test_configuration_can_be_named_by_the_environment(driver: Path, tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_text(f"cards = 7\nstate = {tmp_path / 'own-state'}\n")
    count = run_code(
        driver,
        "ok(cu.cuInit(0)); print(ok(cu.cuDeviceGetCount()))",
        GAIA_SIM_CONF=str(tmp_path / "own.conf"),
    )
    assert count == 7


def test_fastest_card_comes_first_unless_the_bus_decides(machine: Callable[..., Path]) -> None:
    driver = machine(each={1: CardConfig(speed=2, name="Fast")})
    ask = "ok(cu.cuInit(0)); print(json.dumps(ok(cu.cuDeviceGetName(20, 0)).decode().strip(chr(0))))"
    names = [run_code(driver, ask), run_code(driver, ask, CUDA_DEVICE_ORDER="PCI_BUS_ID")]
    assert [name.split("\0")[0] for name in names] == ["Fast", "Gaia Simulated 24GB"]


def test_state_of_an_older_version_is_renewed_when_nobody_uses_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state_file(make_sim(tmp_path / "first", SimConfig(state=tmp_path / "other")), keep=True)
    magic = (tmp_path / "other").read_bytes()[:8]
    state.write_bytes(magic + bytes(5000))
    assert Simulation(make_sim(tmp_path / "driver", SimConfig(state=state))).used() == (0, 0)
    state.write_bytes(b"somebody's" + bytes(5000))
    with pytest.raises(Unusable, match="remove it"):
        Simulation(tmp_path / "driver")
