"""What NVML tells about utilisation, compared with what the simulated card ran."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.sim import Simulation
from tests.sim.sim_client import Client

WINDOW_US = 1e6 / 6
NOT_SUPPORTED, NOT_FOUND = 3, 6
READER = """
import pynvml as nv, time
nv.nvmlInit()
card = nv.nvmlDeviceGetHandleByIndex(0)
def samples(since=0):
    try: return [[s.pid, s.smUtil, s.timeStamp] for s in nv.nvmlDeviceGetProcessUtilization(card, since)]
    except nv.NVMLError as trouble: return trouble.value
def rate():
    try: return nv.nvmlDeviceGetUtilizationRates(card).gpu
    except nv.NVMLError as trouble: return trouble.value
def until(true, look=samples):
    while not true(seen := look()): time.sleep(0.005)
    return seen
def full(seen): return seen != 6 and all(row[1] > 95 for row in seen)
"""
WORK = """
start()
f = ok(cu.cuModuleGetFunction(ok(cu.cuModuleLoadData(b"image")), b"gaia_spin_60000000000"))
ok(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
"""
Start = Callable[..., Client]


@pytest.fixture
def reader(client: Start) -> Client:
    program = client()
    program.do(READER)
    return program


@pytest.fixture
def busy(client: Start) -> Client:
    program = client()
    program.do(WORK)
    return program


def test_idle_card_has_no_samples(reader: Client) -> None:
    assert reader.do("samples()") == NOT_FOUND
    assert reader.do("rate()") == 0


def test_samples_are_of_whole_windows_and_each_is_seen_once(reader: Client, client: Start) -> None:
    busy = client()
    before = time.time() * 1e6
    busy.do(WORK)
    first = reader.do("until(full)")
    assert first[0][0] == busy.pid
    stamp = first[0][2]
    following = reader.do(f"until(lambda seen: seen != 6, lambda: samples({stamp}))")
    assert [row[0] for row in following] == [busy.pid]
    steps = (following[0][2] - stamp) / WINDOW_US
    assert steps >= 0.99
    assert abs(steps - round(steps)) * WINDOW_US < 5, "stamps lie at ends of windows"
    assert reader.do("samples(2 ** 62)") == NOT_FOUND
    # by the day's clock, of what has run, and not of the future
    assert before < stamp < following[0][2] <= time.time() * 1e6


def test_processes_share_the_percent_of_the_card(machine: Callable[..., Path]) -> None:
    driver = machine(alternate_ms=2)
    programs = [Client(driver) for _ in range(3)]
    try:
        reader = programs.pop()
        reader.do(READER)
        for program in programs:
            program.do(WORK)
        both = "lambda seen: seen != 6 and len(seen) == 2"
        first = reader.do(f"until({both})")
        # while that window went on the second began; in any window after it they both had work throughout
        stamp = max(row[2] for row in first)
        seen = reader.do(f"until({both}, lambda: samples({stamp}))")
        assert sorted(row[0] for row in seen) == sorted(program.pid for program in programs)
        assert [row[1] for row in seen] == [pytest.approx(50, abs=2)] * 2
        assert reader.do("until(lambda rate: rate > 98, rate)") <= 100
    finally:
        for program in (*programs, reader):
            program.kill()


def test_finished_process_is_idle_again(reader: Client, busy: Client) -> None:
    stamp = reader.do("until(full)")[0][2]
    busy.kill()
    assert reader.do("until(lambda rate: rate == 0, rate)") == 0
    # the samples of its life stay for who has not read them; there will be none of later
    last = reader.do("samples()")[0][2]
    assert last >= stamp
    assert reader.do(f"samples({last})") == NOT_FOUND


def test_late_samples_tell_of_the_past(reader: Client, busy: Client, truth: Simulation) -> None:
    reader.do("until(full)")
    truth.utilisation("late", delay_ms=3_600_000)
    assert reader.do("samples()") == NOT_FOUND
    assert reader.do("rate()") == 0
    truth.utilisation("late", delay_ms=500)
    stamp = reader.do("until(full)")[0][2]
    assert reader.do(f"time.time() * 1e6 - {stamp} > 500e3")
    truth.utilisation("normal")
    assert reader.do(f"until(lambda seen: seen != 6, lambda: samples({stamp}))")[0][2] > stamp


def test_delay_can_be_configured(machine: Callable[..., Path]) -> None:
    driver = machine(sample_delay_ms=1_000_000)
    program = Client(driver)
    try:
        program.do(READER)
        program.do(WORK)
        truth = Simulation(driver)
        while truth.executed(0).get(program.pid, 0) < 400_000_000:
            assert program.do("samples()") == NOT_FOUND
        truth.utilisation("normal")
        assert program.do("samples()")[0][0] == program.pid
    finally:
        program.kill()


def test_nothing_is_said_for_a_while_or_for_ever(reader: Client, busy: Client, truth: Simulation) -> None:
    reader.do("until(full)")
    truth.utilisation("none")
    assert reader.do("samples()") == NOT_FOUND
    truth.utilisation("none", seconds=3600)
    assert reader.do("samples()") == NOT_FOUND
    truth.utilisation("none", seconds=0)
    assert reader.do("samples()")[0][0] == busy.pid


def test_cards_under_mig_cannot_tell(reader: Client, busy: Client, truth: Simulation) -> None:
    truth.utilisation("unsupported")
    assert reader.do("samples()") == NOT_SUPPORTED
    assert reader.do("rate()") == NOT_SUPPORTED
    assert truth.executed(0)[busy.pid] > 0
    truth.utilisation("normal")
    assert reader.do("until(full)")[0][0] == busy.pid
    with pytest.raises(ValueError, match="normal, late, none, unsupported"):
        truth.utilisation("odd")  # type: ignore[arg-type]


def test_room_for_samples_is_asked_for_first(reader: Client, busy: Client) -> None:
    reader.do("until(full)")
    count = (
        "(lambda n: [nv._nvmlGetFunctionPointer('nvmlDeviceGetProcessUtilization')"
        "(card, None, ctypes.byref(n), ctypes.c_ulonglong(0)), n.value])(ctypes.c_uint(0))"
    )
    assert reader.do(count) == [7, 1]
