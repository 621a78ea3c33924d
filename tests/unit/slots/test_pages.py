"""Pages are made whole, stored word by word, and checked before they are mapped."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.slots.pages import (
    LimitsPage,
    PageDamaged,
    create_limits,
    create_usage,
    fence,
    layout,
    owner_of,
    owner_word,
)

HEADER = Path(__file__).parents[3] / "libvgpu" / "include" / "gaia_pages.h"


def word(path: Path, offset: int) -> int:
    value: int = struct.unpack_from("=Q", path.read_bytes(), offset)[0]
    return value


def test_every_word_of_the_header_is_in_the_layout() -> None:
    text, struct_name, found = HEADER.read_text(), "", set()
    prefix = {
        "gaia_limits": "limits",
        "gaia_limits_card": "limits.card",
        "gaia_limits_process": "limits.process",
        "gaia_usage": "usage",
        "gaia_usage_process": "usage.process",
        "gaia_usage_card": "usage.process.card",
        "gaia_usage_bucket": "usage.bucket",
    }
    for line in text.splitlines():
        if opened := re.match(r"struct (\w+) \{", line):
            struct_name = opened[1]
        if declared := re.match(r"\s+gaia_word (\w+)", line):
            found.add(f"{prefix[struct_name]}.{declared[1]}")
    found = {name for name in found if not name.endswith("reserved")}
    assert found <= set(layout())
    assert len(found) > 30


def test_a_limits_page_of_zeros_grants_nothing(tmp_path: Path) -> None:
    create_limits(tmp_path / "limits")
    octets = (tmp_path / "limits").read_bytes()
    assert len(octets) == layout()["limits.bytes"]
    assert struct.unpack_from("=QQQ", octets) == (layout()["limits_magic"], 1, len(octets))
    assert not any(octets[24:])


def test_a_usage_page_is_empty_and_has_all_its_blocks(tmp_path: Path) -> None:
    create_usage(tmp_path / "usage")
    status = (tmp_path / "usage").stat()
    assert status.st_size == layout()["usage.bytes"]
    octets = (tmp_path / "usage").read_bytes()
    assert struct.unpack_from("=QQQ", octets) == (layout()["usage_magic"], 1, len(octets))
    assert not any(octets[24:])


@pytest.mark.parametrize("create", [create_limits, create_usage])
def test_pages_are_private_and_replaced_in_one_step(
    tmp_path: Path, create: Callable[[Path, int], None]
) -> None:
    path = tmp_path / "page"
    old = os.umask(0o777)
    try:
        path.touch()
        (tmp_path / "page.new").touch()  # left by a killed agent
        before = path.stat().st_ino
        create(path, 0o640)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != before
    assert [entry.name for entry in tmp_path.iterdir()] == ["page"]


def test_a_page_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        create_limits(tmp_path / "missing" / "limits")
    (tmp_path / "directory").mkdir()
    with pytest.raises(IsADirectoryError):
        create_usage(tmp_path / "directory")
    assert [entry.name for entry in tmp_path.iterdir()] == ["directory"]


def test_words_are_stored_within_a_group(tmp_path: Path) -> None:
    path, numbers = tmp_path / "limits", layout()
    create_limits(path)
    with LimitsPage(path) as page:
        with page.group():
            assert word(path, numbers["limits.sequence"]) % 2 == 1
            page.store(numbers["limits.generation"], (1 << 64) - 1)
        assert word(path, numbers["limits.sequence"]) == 2
        assert (
            word(path, numbers["limits.generation"])
            == page.load(numbers["limits.generation"])
            == (1 << 64) - 1
        )
        fence()


def test_a_page_left_odd_is_repaired_by_the_next_writer(tmp_path: Path) -> None:
    path, numbers = tmp_path / "limits", layout()
    create_limits(path)
    with LimitsPage(path) as page:
        with pytest.raises(RuntimeError), page.group():
            raise RuntimeError
        left = word(path, numbers["limits.sequence"])
        assert left % 2 == 1
    with LimitsPage(path) as page:
        with page.group():
            during = word(path, numbers["limits.sequence"])
            assert during % 2 == 1
            assert during != left
        assert word(path, numbers["limits.sequence"]) == during + 1


def test_offsets_outside_and_values_too_large_are_refused(tmp_path: Path) -> None:
    create_limits(tmp_path / "limits")
    size = layout()["limits.bytes"]
    before = (tmp_path / "limits").read_bytes()
    with LimitsPage(tmp_path / "limits") as page:
        for offset, value in (
            (size, 0),
            (size - 4, 0),
            (4, 0),
            (-8, 0),
            (1 << 62, 0),
            (1 << 64, 0),
            (24, -1),
            (24, 1 << 64),
        ):
            with pytest.raises(ValueError, match="word"):
                page.store(offset, value)
        with pytest.raises(ValueError, match="word"):
            page.load(size)
        page.store(size - 8, 0)
    assert (tmp_path / "limits").read_bytes() == before
    with pytest.raises(ValueError, match="closed"):
        page.store(24, 0)


def test_the_heartbeat_is_monotonic_and_wakes_change_the_word(tmp_path: Path) -> None:
    path, numbers = tmp_path / "limits", layout()
    create_limits(path)
    futex = numbers["limits.card"] + numbers["limits.card.futex"]
    with LimitsPage(path) as page:
        page.heartbeat()
        first = word(path, numbers["limits.heartbeat_ns"])
        page.heartbeat()
        assert 0 < first <= word(path, numbers["limits.heartbeat_ns"])
        page.wake(futex)
        page.wake(futex)
    assert word(path, futex) == 2


def _truncate(path: Path) -> None:
    os.truncate(path, 100)


def _extend(path: Path) -> None:
    os.truncate(path, 1 << 20)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _noise(path: Path) -> None:
    path.write_bytes(os.urandom(layout()["limits.bytes"]))


def _usage(path: Path) -> None:
    create_usage(path)


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
    "spoil", [_truncate, _extend, _empty, _noise, _usage, _fifo, _link, _directory, Path.unlink]
)
def test_a_foreign_page_is_not_mapped(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    create_limits(tmp_path / "limits")
    spoil(tmp_path / "limits")
    with pytest.raises(PageDamaged):
        LimitsPage(tmp_path / "limits")


def test_a_page_truncated_while_mapped_is_found_before_a_store(tmp_path: Path) -> None:
    create_limits(tmp_path / "limits")
    with LimitsPage(tmp_path / "limits") as page:
        os.truncate(tmp_path / "limits", 0)
        with pytest.raises(PageDamaged), page.group():
            pytest.fail("the group must not begin")
        with pytest.raises(PageDamaged):
            page.heartbeat()


def test_an_owner_word_is_pid_and_start() -> None:
    assert owner_of(owner_word(4194304, 123456789)) == (4194304, 123456789)
    assert owner_word(1, (1 << 42) + 5) == owner_word(1, 5)
