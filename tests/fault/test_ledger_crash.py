"""SIGKILL at any moment: the ledger stays sound, answers stay given, pages never exceed the ledger."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gaia_plugin.ledger import Ledger
from gaia_plugin.ledger.book import violations
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.limits import share_of
from gaia_plugin.slots.pages import LimitsPage, PageDamaged, layout

WORKER = Path(__file__).with_name("ledger_worker.py")
_worker = runpy.run_path(str(WORKER), run_name="worker")
CARDS, recover = _worker["CARDS"], _worker["recover"]
MOST_ANSWERS = 25
LONGEST_SPIN = 0.004


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for place in ("shadows", "driver"):
        (tmp_path / place).mkdir()
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (tmp_path / place / name).write_bytes(place.encode())
    return tmp_path


def work_and_kill(state: Path, dice: random.Random, *, early: bool) -> dict[str, str]:
    """Let a worker give some answers, kill it somewhere in the next one, return the answers by slot."""
    answers: dict[str, str] = {}
    command = [sys.executable, str(WORKER), str(state), str(dice.randrange(1 << 30))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        if not early:
            for _ in range(dice.randint(1, MOST_ANSWERS)):
                line = worker.stdout.readline()
                assert line, "the worker ended by itself"
                if line != "ready\n":
                    slot, answer = line.split()
                    answers[slot] = answer
        until = time.perf_counter() + dice.random() * LONGEST_SPIN
        while time.perf_counter() < until:
            pass
        worker.kill()
        # what was answered between the last line read and the kill counts as well
        for line in worker.stdout.read().splitlines(keepends=True):
            if line.endswith("\n") and line != "ready\n":
                slot, answer = line.split()
                answers[slot] = answer
    return answers


def in_force(path: Path) -> dict[int, Share]:
    """Read what a page grants, by the index of its card, as a process of the slot would."""
    numbers, granted = layout(), {}
    try:
        page = LimitsPage(path / "limits")
    except PageDamaged:
        return {}  # not made yet; nothing can be allocated under it
    with page:
        for index in range(numbers["cards"]):
            base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
            granted[index] = share_of(
                page.load(base + numbers["limits.card.memory_limit"]),
                page.load(base + numbers["limits.card.guarantee_ppm"]),
            )
    return granted


def check_before_recovery(state: Path, ledger: Ledger, answers: dict[str, str]) -> None:
    assert violations(ledger._read()) == ()
    records = {record.slot: record for record in ledger.slots()}
    for slot, answer in answers.items():
        # at least what was answered; or released meanwhile, by an action whose answer nobody got
        if answer != "gone" and slot in records:
            assert records[slot].generation >= int(answer)
    for path in (state / "slots").iterdir() if (state / "slots").exists() else ():
        record = records.get(path.name)
        for index, granted in in_force(path).items():
            held = record.slices[index].held if record and index < len(record.slices) else NOTHING
            assert granted.fits(held), (path.name, index, granted, record)


def check_after_recovery(state: Path, ledger: Ledger) -> None:
    directories = SlotDirectories(state, state / "shadows")
    recover(ledger, directories, state / "driver")
    records = ledger.slots()
    assert directories.slots() == sorted(record.slot for record in records)
    for record in records:
        assert directories.in_force(record) == {part.card: part.target for part in record.slices}
        assert not directories.usage(record.slot).damaged
        with LimitsPage(directories.path(record.slot) / "limits") as page:
            assert page.load(layout()["limits.sequence"]) % 2 == 0
            assert page.load(layout()["limits.generation"]) == record.generation
    directories.close()
    for card in CARDS:
        held = sum((part.held for r in records for part in r.slices if part.card == card.uuid), NOTHING)
        assert held.fits(card.share)


def kill_often(state: Path, times: int, seed: int) -> None:
    dice = random.Random(seed)
    for round_number in range(times):
        answers = work_and_kill(state, dice, early=round_number % 10 == 9)
        if not (state / "ledger.sqlite").exists():
            continue
        with Ledger(state / "ledger.sqlite") as ledger:
            check_before_recovery(state, ledger, answers)
            if round_number % 2:  # else the next worker recovers, and may be killed while it does
                check_after_recovery(state, ledger)


def test_fifty_kills_break_nothing(state: Path) -> None:
    kill_often(state, 50, seed=7)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_many_kills_break_nothing(state: Path, seed: int) -> None:
    kill_often(state, 250, seed=seed)
