"""Pages that are missing, cut short, foreign or full of noise: no memory, no crash, no text."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.c.slotbench import MIB, OOM, Bench, Client

Make = Callable[..., Bench]


def _damage(slot: Bench, how: str) -> None:
    limits, usage = slot.slot / "limits", slot.slot / "usage"
    if how == "no limits":
        limits.unlink()
    elif how == "no usage":
        usage.unlink()
    elif how == "no slot":
        limits.unlink()
        usage.unlink()
    elif how == "empty limits":
        os.truncate(limits, 0)
    elif how == "short limits":
        os.truncate(limits, 8192)
    elif how == "short usage":
        os.truncate(usage, 4096)
    elif how == "zero limits":
        limits.write_bytes(bytes(limits.stat().st_size))
    elif how == "zero usage":
        usage.write_bytes(bytes(usage.stat().st_size))
    elif how == "noisy limits":
        limits.write_bytes(random.Random(1).randbytes(limits.stat().st_size))
    elif how == "noisy usage":
        usage.write_bytes(random.Random(2).randbytes(usage.stat().st_size))
    elif how == "limits is a directory":
        limits.unlink()
        limits.mkdir()
    elif how == "limits is a pipe":
        limits.unlink()
        os.mkfifo(limits)
    elif how == "other version":
        with limits.open("r+b") as page:
            page.seek(8)
            page.write((9).to_bytes(8, "little"))


DAMAGE = [
    "no limits",
    "no usage",
    "no slot",
    "empty limits",
    "short limits",
    "short usage",
    "zero limits",
    "zero usage",
    "noisy limits",
    "noisy usage",
    "limits is a directory",
    "limits is a pipe",
    "other version",
]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_bad_page_at_the_start_grants_nothing(bench: Make, how: str) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    _damage(slot, how)
    with slot.client() as program:
        assert program.call("init") == 0
        assert program.call("retain 0 0") == OOM
        assert program.call(f"vcreate 1 {2 * MIB} 0 1") == OOM
        assert program.numbers("total 0") == [0, 0]
        assert program.numbers(f"nvml v1 {slot.uuids[0]}") == [0, 0, 0, 0]
        assert program.numbers(f"nvml v2 {slot.uuids[0]}") == [0, 0, 0, 0, 0]
        assert slot.truth()[1] == 0
        program.process.stdin.close()  # type: ignore[union-attr]
        assert program.process.wait(120) == 0
        assert program.process.stdout
        assert program.process.stdout.read() == ""
        assert program.process.stderr
        assert program.process.stderr.read() == "", "no text from a library in somebody else's program"


def _until(program: Client, line: str, wanted: list[int]) -> None:
    deadline = time.monotonic() + 60
    while program.numbers(line) != wanted:
        assert time.monotonic() < deadline, f"{line}: {program.numbers(line)}"


@pytest.mark.parametrize(
    "how", ["zero limits", "noisy limits", "empty limits", "short limits", "short usage"]
)
def test_a_page_that_goes_bad_under_a_running_program(bench: Make, how: str) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    good = {name: (slot.slot / name).read_bytes() for name in ("limits", "usage")}
    with slot.client() as program:
        program.start()
        assert program.call(f"alloc 1 {256 * MIB}") == 0
        _idle(program)
        _damage(slot, how)
        assert program.numbers("info") == [0, 0, 0]
        assert program.call("alloc 2 1") == OOM
        for name, content in good.items():
            (slot.slot / name).write_bytes(content)
        _until(program, "info", [0, 768 * MIB, 1024 * MIB])  # what it holds is counted again
        assert slot.used() == 256 * MIB
        assert program.calls("free 1", f"alloc 2 {1024 * MIB}", "alloc 3 1") == [0, 0, OOM]


def _idle(program: Client) -> None:
    """Let more than the 10 ms pass after which the library looks at its pages again."""
    end = time.monotonic() + 0.03
    while time.monotonic() < end:
        program.call("pid")


def test_a_page_that_becomes_good_later_is_picked_up(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    hidden = slot.slot / "hidden"
    (slot.slot / "limits").rename(hidden)
    with slot.client() as program:
        assert program.call("init") == 0
        assert program.call("retain 0 0") == OOM
        hidden.rename(slot.slot / "limits")
        assert program.calls("retain 0 0", "set 0", f"alloc 1 {1024 * MIB}", "alloc 2 1") == [0, 0, 0, OOM]


def test_a_card_that_is_written_later_is_picked_up(bench: Make) -> None:
    slot = bench()
    with slot.client() as program:
        assert program.calls("init", "retain 0 0") == [0, OOM]
        slot.card(0, 1024 * MIB)
        assert program.calls("retain 0 0", "set 0", f"alloc 1 {1024 * MIB}", "alloc 2 1") == [0, 0, 0, OOM]


def test_noise_in_others_places_is_swept(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    usage = slot.slot / "usage"
    with slot.client() as program:
        program.start()
        noise = random.Random(3)
        with usage.open("r+b") as page:
            page.seek(24)
            page.write((2**64 - 1).to_bytes(8, "little"))  # high_water
            page.seek(4096 + 1088)  # every place but the first
            page.write(noise.randbytes(usage.stat().st_size - 4096 - 1088))
        assert program.call(f"alloc 1 {1024 * MIB}") in (0, OOM), "noise may look like a living process"
        assert program.call("alloc 2 1") == OOM
        assert slot.truth()[1] <= 1024 * MIB


def test_a_program_that_never_uses_cuda_pays_nothing(bench: Make) -> None:
    slot = bench()
    slot.card(0, 1024 * MIB)
    with slot.client() as program:
        assert program.call("open") == 0
        for name in ("/limits", "/usage"):
            assert program.numbers(f"maps {name}") == [0, 0]
        assert slot.places() == []
        assert not slot.state.exists()


def test_no_variable_changes_the_limit(bench: Make) -> None:
    slot = bench()
    slot.card(0, 100 * MIB)
    lies = {
        "GAIA_MEMORY_LIMIT": "99999999999",
        "GAIA_SLOT_SOCKET": "/tmp/x",
        "GAIA_LIMITS": "/tmp/x",
        "GAIA_SLOT": "/tmp",
    }
    with slot.client(**lies) as program:
        program.start()
        assert program.call(f"alloc 1 {100 * MIB + 1}") == OOM
