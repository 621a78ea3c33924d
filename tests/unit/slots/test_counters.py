"""Counters of GPU time, read from a page that its tenants may spoil."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from gaia_plugin.slots.counters import Counters, read_counters
from gaia_plugin.slots.pages import create_usage, layout, owner_word


@pytest.fixture
def page(tmp_path: Path) -> Path:
    create_usage(tmp_path / "usage")
    return tmp_path / "usage"


def put(
    path: Path, place: int, pid: int, *cards: tuple[int, int, int], high_water: int | None = None
) -> None:
    numbers = layout()
    base = numbers["usage.process"] + place * numbers["usage.process.bytes"]
    with path.open("r+b") as file:
        for index, words in enumerate(cards):
            at = base + numbers["usage.process.card"] + index * numbers["usage.process.card.bytes"]
            for name, value in zip(("busy_ns", "throttled_ns", "launches"), words, strict=True):
                file.seek(at + numbers[f"usage.process.card.{name}"])
                file.write(struct.pack("=Q", value))
        file.seek(base + numbers["usage.process.owner"])
        file.write(struct.pack("=Q", owner_word(pid, 5)))
        file.seek(numbers["usage.high_water"])
        file.write(struct.pack("=Q", place + 1 if high_water is None else high_water))


def test_every_process_by_card(page: Path) -> None:
    assert read_counters(page, 2) == ()
    put(page, 0, 11, (100, 20, 3))
    put(page, 4, 12, (1, 2, 3), (7, 8, 9))
    first, second = read_counters(page, 2)
    assert (first.pid, first.owner, first.cards) == (
        11,
        owner_word(11, 5),
        (Counters(100, 20, 3), Counters()),
    )
    assert (second.pid, second.cards) == (12, (Counters(1, 2, 3), Counters(7, 8, 9)))


def test_a_high_water_of_a_liar_leads_nowhere(page: Path) -> None:
    put(page, 0, 11, (100, 20, 3), high_water=(1 << 64) - 1)
    assert [each.pid for each in read_counters(page, 1)] == [11]
    put(page, 0, 11, (100, 20, 3), high_water=0)
    assert read_counters(page, 1) == ()


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 5000, 1 << 21])
def test_noise_of_any_size_is_a_value(page: Path, size: int) -> None:
    header = page.read_bytes()[:32]
    for start in (b"", header):
        page.write_bytes((start + random.Random(size).randbytes(size))[:size])
        assert isinstance(read_counters(page, 16), tuple)


def test_what_is_not_a_file_has_no_counters(page: Path, tmp_path: Path) -> None:
    assert read_counters(tmp_path / "none", 1) == ()
    assert read_counters(tmp_path, 1) == ()
    (tmp_path / "link").symlink_to(page)
    assert read_counters(tmp_path / "link", 1) == ()
    os.mkfifo(tmp_path / "fifo")
    assert read_counters(tmp_path / "fifo", 1) == ()
