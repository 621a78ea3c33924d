"""Slot directories: made, repaired, stored and removed."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.library import library_version
from gaia_plugin.slots.pages import LimitsPage, PageDamaged, layout, owner_word
from gaia_plugin.slots.uuids import uuid_words
from gaia_plugin.units import MEMORY_UNIT

A = "GPU-00112233-4455-6677-8899-aabbccddeeff"
B = "GPU-ffeeddcc-bbaa-9988-7766-554433221100"
CARDS = (CardCapacity(A, 0, "sim", 94), CardCapacity(B, 1, "sim", 20))
RECORD = SlotRecord(
    slot="alice--lab",
    owner="alice",
    name="lab",
    generation=3,
    releasing=False,
    compute="hard",
    maximum=Share(80, 150),
    slices=tuple(SliceRecord(card, Share(9, 9), Share(8, 25), Share(16, 30)) for card in (A, B)),
    process=None,
    process_start=None,
    created=0.0,
)


@pytest.fixture
def shadows(tmp_path: Path) -> Path:
    for place in ("shadows", "driver"):
        (tmp_path / place).mkdir()
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (tmp_path / place / name).write_bytes(f"{place} {name}".encode())
    return tmp_path / "shadows"


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    return tmp_path / "driver"


@pytest.fixture
def directories(tmp_path: Path, shadows: Path) -> Iterator[SlotDirectories]:
    made = SlotDirectories(tmp_path / "state", shadows)
    yield made
    made.close()


def loaded(path: Path, name: str, card: int | None = None) -> int:
    numbers = layout()
    with LimitsPage(path / "limits") as page:
        if card is None:
            return page.load(numbers[f"limits.{name}"])
        return page.load(
            numbers["limits.card"] + card * numbers["limits.card.bytes"] + numbers[f"limits.card.{name}"]
        )


def test_a_directory_has_pages_and_library_and_is_private(
    directories: SlotDirectories, driver: Path, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, driver)
    assert path == tmp_path / "state" / "slots" / "alice--lab"
    assert directories.slots() == ["alice--lab"]
    assert sorted(entry.name for entry in path.iterdir()) == ["lib", "limits", "usage"]
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "limits").stat().st_mode) == 0o600
    assert stat.S_IMODE((path / "usage").stat().st_mode) == 0o600
    assert str((path / "lib").readlink()).startswith("../../lib/")
    assert (path / "lib" / "libcuda.so.1").read_text() == "shadows libcuda.so.1"
    assert (path / "lib" / "libnvidia-ml.so").read_text() == "shadows libnvidia-ml.so.1"
    assert (path / "lib" / "driver" / "libcuda.so.1").read_text() == "driver libcuda.so.1"


def test_the_page_says_the_target_and_never_what_is_held(directories: SlotDirectories, driver: Path) -> None:
    path = directories.create(RECORD, CARDS, driver)
    assert directories.in_force(RECORD) == {A: Share(8, 25), B: Share(8, 25)}
    assert loaded(path, "generation") == 3
    assert loaded(path, "state") == layout()["state.draining"]
    assert loaded(path, "card_count") == 2
    assert loaded(path, "sequence") % 2 == 0
    assert loaded(path, "heartbeat_ns") > 0
    assert loaded(path, "boot_id") > 0
    for card, uuid in enumerate((A, B)):
        numbers = layout()
        with LimitsPage(path / "limits") as page:
            base = numbers["limits.card"] + card * numbers["limits.card.bytes"]
            assert (page.load(base), page.load(base + 8)) == uuid_words(uuid)
        assert loaded(path, "memory_limit", card) == 8 * MEMORY_UNIT
        assert loaded(path, "memory_ceiling", card) == (40, 20)[card] * MEMORY_UNIT
        assert loaded(path, "memory_report", card) == layout()["report.limit"]
        assert loaded(path, "rate_ppm", card) == loaded(path, "ceiling_ppm", card) == 250_000
        assert loaded(path, "compute_mode", card) == layout()["compute.hard"]
        assert loaded(path, "burst_ns", card) == 12_500_000
        assert loaded(path, "futex", card) == 1
    assert loaded(path, "memory_limit", 2) == 0


def test_elastic_may_use_idle_time_above_its_floor(directories: SlotDirectories, driver: Path) -> None:
    path = directories.create(dataclasses.replace(RECORD, compute="elastic"), CARDS, driver)
    assert loaded(path, "guarantee_ppm", 0) == 250_000
    assert loaded(path, "rate_ppm", 0) == 250_000
    assert loaded(path, "ceiling_ppm", 0) == 750_000  # its maximum of 150 over two cards
    assert loaded(path, "compute_mode", 0) == layout()["compute.elastic"]
    assert loaded(path, "burst_ns", 0) == 0  # 50 ms at the rate in force


def test_the_cards_ceiling_bounds_what_is_above_the_floor_and_not_the_floor(
    tmp_path: Path, shadows: Path, driver: Path
) -> None:
    for percent, ceiling in ((60, 600_000), (10, 250_000)):
        made = SlotDirectories(tmp_path / f"{percent}", shadows, compute_ceiling=percent * 10_000)
        path = made.create(dataclasses.replace(RECORD, compute="elastic"), CARDS, driver)
        assert loaded(path, "ceiling_ppm", 0) == ceiling
        made.close()


def test_a_rate_is_stored_alone_and_wakes(directories: SlotDirectories, driver: Path) -> None:
    record = dataclasses.replace(RECORD, compute="elastic")
    path = directories.create(record, CARDS, driver)
    assert directories.rates(record.slot) == {A: 250_000, B: 250_000}
    directories.store_rate(record, B, 600_000)
    assert (loaded(path, "rate_ppm", 0), loaded(path, "rate_ppm", 1)) == (250_000, 600_000)
    assert loaded(path, "futex", 1) == loaded(path, "futex", 0) + 1
    assert directories.in_force(record)[B].cores == 25
    directories.store(record)  # something else of the slot changes: what was lent stays
    assert loaded(path, "rate_ppm", 1) == 600_000
    directories.store(dataclasses.replace(record, compute="hard"))
    assert loaded(path, "rate_ppm", 1) == 250_000


def test_a_released_slot_grants_nothing(directories: SlotDirectories, driver: Path) -> None:
    path = directories.create(RECORD, CARDS, driver)
    slices = tuple(dataclasses.replace(part, target=NOTHING) for part in RECORD.slices)
    released = dataclasses.replace(RECORD, slices=slices, releasing=True, generation=4)
    directories.store(released)
    assert directories.in_force(released) == {A: NOTHING, B: NOTHING}
    assert loaded(path, "memory_ceiling", 0) == loaded(path, "ceiling_ppm", 0) == 0
    assert loaded(path, "state") == layout()["state.releasing"]


def test_creating_again_keeps_what_is_sound(
    directories: SlotDirectories, driver: Path, tmp_path: Path
) -> None:
    path = directories.create(RECORD, CARDS, driver)
    with (path / "usage").open("r+b") as file:
        file.seek(layout()["usage.process"])
        file.write(b"claims")
    before = {name: (path / name).stat().st_ino for name in ("limits", "usage")}
    library = (path / "lib").readlink()
    (tmp_path / "shadows" / "libcuda.so.1").write_bytes(b"a newer version")
    directories.close()
    directories.create(dataclasses.replace(RECORD, generation=9), CARDS, driver)
    assert {name: (path / name).stat().st_ino for name in ("limits", "usage")} == before
    assert (path / "lib").readlink() == library  # running programs have it mapped
    assert loaded(path, "generation") == 9


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: os.truncate(path, 10),
        lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
        Path.unlink,
    ],
)
@pytest.mark.parametrize("name", ["limits", "usage"])
def test_creating_again_repairs_what_is_damaged(
    directories: SlotDirectories, driver: Path, name: str, spoil: Callable[[Path], object]
) -> None:
    path = directories.create(RECORD, CARDS, driver)
    spoil(path / name)
    directories.close()
    directories.create(RECORD, CARDS, driver)
    assert directories.in_force(RECORD) == {A: Share(8, 25), B: Share(8, 25)}
    assert not directories.usage(RECORD.slot).damaged


def test_storing_makes_a_truncated_page_anew(directories: SlotDirectories, driver: Path) -> None:
    path = directories.create(RECORD, CARDS, driver)
    os.truncate(path / "limits", 0)
    with pytest.raises(PageDamaged):
        directories.heartbeat(RECORD.slot)
    directories.store(RECORD)
    directories.heartbeat(RECORD.slot)
    assert directories.in_force(RECORD)[A] == Share(8, 25)


def test_a_library_that_is_gone_is_linked_anew(directories: SlotDirectories, driver: Path) -> None:
    path = directories.create(RECORD, CARDS, driver)
    (path / "lib").unlink()
    (path / "lib").symlink_to("../../lib/nowhere")
    directories.create(RECORD, CARDS, driver)
    assert (path / "lib" / "libcuda.so.1").exists()


def test_overheads_belong_to_one_owner(directories: SlotDirectories, driver: Path) -> None:
    path, numbers = directories.create(RECORD, CARDS, driver), layout()
    base = numbers["limits.process"] + 7 * numbers["limits.process.bytes"]

    def words() -> list[int]:
        with LimitsPage(path / "limits") as page:
            return [page.load(base + 8 * index) for index in range(5)]

    directories.store_overhead(RECORD.slot, 7, owner_word(5, 50), [11, 22])
    assert words() == [owner_word(5, 50), 11, 22, 0, 0]
    directories.store_overhead(RECORD.slot, 7, owner_word(6, 60), [33])
    assert words() == [owner_word(6, 60), 33, 0, 0, 0]
    directories.store_overhead(RECORD.slot, 7, 0, [])
    assert words() == [0] * 5


def test_pending_is_by_card_and_unknown_when_damaged(directories: SlotDirectories, driver: Path) -> None:
    path = directories.create(RECORD, CARDS, driver)
    assert directories.pending(RECORD) == {A: 0, B: 0}
    os.truncate(path / "usage", 0)
    assert directories.pending(RECORD) is None


def test_removing_leaves_nothing_and_may_be_repeated(directories: SlotDirectories, driver: Path) -> None:
    assert directories.slots() == []
    path = directories.create(RECORD, CARDS, driver)
    (path / "agent.sock").touch()
    directories.remove(RECORD.slot)
    directories.remove(RECORD.slot)
    assert list(path.parent.iterdir()) == []
    assert directories.usage(RECORD.slot).damaged


def test_a_path_never_leads_elsewhere(directories: SlotDirectories) -> None:
    for name in ("..", "../x", "/etc", ".gone-x", ""):
        with pytest.raises(Refusal):
            directories.path(name)


def test_a_library_version_is_never_overwritten(tmp_path: Path, shadows: Path, driver: Path) -> None:
    store = tmp_path / "lib"
    first = library_version(store, shadows, driver)
    mapped = (first / "libcuda.so.1").stat()
    assert library_version(store, shadows, driver) == first
    assert (first / "libcuda.so.1").stat() == mapped
    (shadows / "libcuda.so.1").write_bytes(b"newer")
    second = library_version(store, shadows, driver)
    assert second != first
    assert (first / "libcuda.so.1").read_text() == "shadows libcuda.so.1"
    (second / "libcuda.so.1").chmod(0o755)
    (second / "libcuda.so.1").write_bytes(b"damaged")
    third = library_version(store, shadows, driver)
    assert third not in (first, second)
    assert (second / "libcuda.so.1").read_text() == "damaged"
    assert sorted(entry for entry in store.iterdir()) == sorted([first, second, third])


def test_another_driver_is_another_version(tmp_path: Path, shadows: Path, driver: Path) -> None:
    (tmp_path / "alias").symlink_to(driver)
    first = library_version(tmp_path / "lib", shadows, driver)
    assert library_version(tmp_path / "lib", shadows, tmp_path / "alias") == first
    driver.rename(tmp_path / "other")
    assert library_version(tmp_path / "lib", shadows, tmp_path / "other") != first


def test_missing_libraries_are_said_to_be_missing(tmp_path: Path, shadows: Path, driver: Path) -> None:
    with pytest.raises(Unusable, match=r"no libcuda\.so\.1 in"):
        library_version(tmp_path / "lib", shadows, tmp_path / "nowhere")
    (shadows / "libnvidia-ml.so.1").unlink()
    with pytest.raises(Unusable, match="shadow library"):
        library_version(tmp_path / "lib", shadows, driver)
