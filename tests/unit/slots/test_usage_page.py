"""Whatever a tenant writes into its usage page comes out as a value."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.slots.pages import create_limits, create_usage, layout, owner_word
from gaia_plugin.slots.processes import start_time
from gaia_plugin.slots.usage import CardUsage, read_usage


def put(path: Path, place: int, owner: int, **cards: tuple[int, int, int]) -> None:
    """Write a place as a process would: used, pending, context by card ``c<index>``."""
    numbers = layout()
    base = numbers["usage.process"] + place * numbers["usage.process.bytes"]
    with path.open("r+b") as file:
        file.seek(numbers["usage.high_water"])
        (highest,) = struct.unpack("=Q", file.read(8))
        file.seek(numbers["usage.high_water"])
        file.write(struct.pack("=Q", max(highest, place + 1)))
        file.seek(base)
        file.write(struct.pack("=Q", owner))
        for name, (used, pending, context) in cards.items():
            file.seek(
                base + numbers["usage.process.card"] + int(name[1:]) * numbers["usage.process.card.bytes"]
            )
            file.write(struct.pack("=QQQ", used, pending, context))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    create_usage(tmp_path / "usage")
    return tmp_path / "usage"


@pytest.fixture
def me() -> int:
    start = start_time(os.getpid())
    assert start is not None
    return owner_word(os.getpid(), start)


def test_an_empty_page_has_no_processes(page: Path) -> None:
    usage = read_usage(page, 2)
    assert usage.processes == ()
    assert usage.damaged == ""
    assert (usage.used(0), usage.pending(1)) == (0, 0)


def test_the_living_are_counted_by_card_wherever_they_are(page: Path, me: int) -> None:
    put(page, 0, me, c0=(100, 7, 1))
    put(page, 1023, me, c0=(50, 0, 0), c1=(9, 3, 1), c15=(4, 0, 0))
    usage = read_usage(page, 16)
    assert [process.place for process in usage.processes] == [0, 1023]
    assert usage.processes[0].pid == os.getpid()
    assert usage.processes[0].owner == me
    assert usage.processes[1].cards[1] == CardUsage(9, 3, True)
    assert (usage.used(0), usage.pending(0), usage.used(1), usage.used(15)) == (150, 7, 9, 4)
    assert len(read_usage(page, 1).processes[0].cards) == 1


def test_the_dead_are_not_counted(page: Path, me: int) -> None:
    put(page, 0, me + 1, c0=(100, 7, 1))
    put(page, 1, owner_word(1 << 21, 5), c0=(100, 7, 1))
    put(page, 2, 0, c0=(100, 7, 1))
    assert read_usage(page, 1).processes == ()


def test_bytes_on_their_way_are_never_missed(page: Path, me: int) -> None:
    """Between the two readings a process turns what it announced into what it uses."""
    put(page, 0, me, c0=(100, 50, 1))

    def host_pid(pid: int, start: int) -> int | None:
        put(page, 0, me, c0=(150, 0, 1))
        return pid

    usage = read_usage(page, 1, host_pid)
    assert usage.used(0) + (usage.pending(0) or 0) == 200


def test_a_place_that_changes_hands_is_left_out(page: Path, me: int) -> None:
    put(page, 0, me, c0=(100, 50, 1))

    def host_pid(pid: int, start: int) -> int | None:
        put(page, 0, me + 1)
        return pid

    assert read_usage(page, 1, host_pid).processes == ()


def test_a_page_cut_while_it_is_read_is_damaged(page: Path, me: int) -> None:
    put(page, 5, me, c0=(100, 50, 1))

    def host_pid(pid: int, start: int) -> int | None:
        os.truncate(page, 5000)
        return pid

    assert read_usage(page, 1, host_pid).damaged


def test_noise_of_the_living_is_cut_to_numbers_everybody_can_write(page: Path, me: int) -> None:
    put(page, 0, me, c0=((1 << 64) - 1, (1 << 64) - 1, 77))
    usage = read_usage(page, 1)
    assert usage.used(0) == usage.pending(0) == (1 << 53) - 1


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        _fifo,
        _link,
        _directory,
        create_limits,
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 4096),
        lambda path: os.truncate(path, 1 << 24),
        lambda path: path.write_bytes(bytes(layout()["usage.bytes"])),
    ],
)
def test_a_spoilt_page_is_damaged(page: Path, spoil: Callable[[Path], object]) -> None:
    spoil(page)
    usage = read_usage(page, 2)
    assert usage.damaged
    assert usage.processes == ()
    assert usage.pending(0) is None


def test_noise_never_raises(page: Path) -> None:
    header, size, dice = page.read_bytes()[:24], layout()["usage.bytes"], random.Random(5)
    for _ in range(5):
        page.write_bytes(header + dice.randbytes(size - 24))
        usage = read_usage(page, 16)
        assert usage.damaged == ""
        assert usage.processes == ()
        page.write_bytes(dice.randbytes(size))
        assert read_usage(page, 16).damaged
