"""The inventory against a fake NVML with habits to order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.gpu import Gpus, Level, Tie, Use
from gaia_plugin.gpu.links import bus_text
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.units import GIB, MIB
from tests.unit.gpu.fake_nvml import FakeDriver

Fake = Callable[..., FakeDriver]


def test_cards_are_listed_by_uuid_with_their_reserve(fake: Fake) -> None:
    with Nvml(fake().directory) as nvml:
        gpus: Gpus = nvml
        cards = gpus.cards()
    assert [card.uuid for card in cards] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    third = cards[2]
    assert (third.index, third.name, third.healthy, third.trouble) == (2, "Fake 2", True, "")
    assert (third.memory_total, third.memory_reserved) == (24 * GIB, 512 * MIB)
    assert (third.pci_bus_id, third.numa) == ("00000000:a2:00.0", 1)


def test_an_old_driver_without_newer_functions_is_read_all_the_same(fake: Fake) -> None:
    driver = fake("-DOLD")
    driver.set("processes", 2)
    with Nvml(driver.directory) as nvml:
        card = nvml.cards()[0]
        assert (card.memory_total, card.memory_reserved, card.healthy) == (24 * GIB, 0, True)
        assert (card.pci_bus_id, card.numa) == ("", None)
        assert nvml.processes("GPU-0") == {1000: MIB, 1001: 2 * MIB}
        assert nvml.memory_used("GPU-0") == 5
        assert nvml.topology().level("GPU-0", "GPU-1") is Level.ANY


def test_a_lost_card_is_not_healthy_and_keeps_what_was_known_of_it(fake: Fake) -> None:
    driver = fake()
    with Nvml(driver.directory) as nvml:
        before = nvml.cards()[1]
        driver.set("lost", 1)
        after = nvml.cards()[1]
        assert (before.healthy, after.healthy) == (True, False)
        assert "lost" in after.trouble.lower()
        assert (after.uuid, after.name, after.memory_total) == (before.uuid, before.name, before.memory_total)
        assert [card.healthy for card in nvml.cards()] == [True, False, True, True]
        with pytest.raises(Refusal) as refused:
            nvml.memory_used("GPU-1")
        assert refused.value.code is Code.UNAVAILABLE
        driver.set("lost", -1)
        assert nvml.cards()[1] == before


def test_a_card_that_cannot_be_reached_any_more_stays_listed(fake: Fake) -> None:
    driver = fake()
    with Nvml(driver.directory) as nvml:
        driver.set("gone", 3)
        cards = nvml.cards()
        assert [(card.uuid, card.healthy) for card in cards][3] == ("GPU-3", False)
        for question in (nvml.memory_used, nvml.processes):
            with pytest.raises(Refusal) as refused:
                question("GPU-3")
            assert refused.value.code is Code.UNAVAILABLE
        assert nvml.topology().level("GPU-0", "GPU-3") is Level.ANY
        driver.set("gone", -1)
        assert all(card.healthy for card in nvml.cards())


def test_a_card_lost_before_the_start_does_not_hide_the_others(fake: Fake) -> None:
    driver = fake()
    driver.set("gone", 0)
    with Nvml(driver.directory) as nvml:
        assert [card.uuid for card in nvml.cards()] == ["GPU-1", "GPU-2", "GPU-3"]


def test_a_card_in_mig_mode_gets_no_slices(fake: Fake) -> None:
    driver = fake()
    driver.set("mig", 2)
    with Nvml(driver.directory) as nvml:
        assert [card.healthy for card in nvml.cards()] == [True, True, False, True]
        assert "MIG" in nvml.cards()[2].trouble


def test_a_process_without_a_figure_is_none_and_not_a_number(fake: Fake) -> None:
    driver = fake()
    driver.set("processes", 3)
    driver.set("no_figure", 1001)
    with Nvml(driver.directory) as nvml:
        assert nvml.processes("GPU-0") == {1000: MIB, 1001: None, 1002: 3 * MIB}


def test_more_processes_than_expected_are_all_listed(fake: Fake) -> None:
    driver = fake()
    driver.set("processes", 500)
    with Nvml(driver.directory) as nvml:
        assert nvml.processes("GPU-0") == {1000 + i: (i + 1) * MIB for i in range(500)}


def test_clients_of_mps_count_once_with_the_larger_figure(fake: Fake) -> None:
    driver = fake()
    driver.set("processes", 2)
    driver.set("mps", 2)
    with Nvml(driver.directory) as nvml:
        assert nvml.processes("GPU-0") == {1000: MIB, 1001: 2 * MIB, 1002: 2 * MIB}


@pytest.mark.parametrize(
    ("answer", "outcome"), [(6, {}), (3, Code.UNAVAILABLE), (15, Code.UNAVAILABLE), (999, Code.UNAVAILABLE)]
)
def test_no_list_of_processes_is_not_an_empty_one(fake: Fake, answer: int, outcome: object) -> None:
    driver = fake()
    driver.set("list_error", answer)
    with Nvml(driver.directory) as nvml:
        if outcome == {}:
            assert nvml.processes("GPU-0") == {}
            return
        with pytest.raises(Refusal) as refused:
            nvml.processes("GPU-0")
        assert refused.value.code is outcome


def test_a_driver_without_events_says_so_and_does_not_wait(fake: Fake) -> None:
    with Nvml(fake().directory) as nvml:
        for _ in range(2):
            with pytest.raises(Refusal, match="does not tell of faults") as caught:
                nvml.xid(1000.0)
            assert caught.value.code is Code.UNAVAILABLE


def test_an_unknown_uuid_is_refused(fake: Fake) -> None:
    with Nvml(fake().directory) as nvml:
        for question in (nvml.memory_used, nvml.processes):
            with pytest.raises(Refusal) as refused:
                question("GPU-none")
            assert refused.value.code is Code.NO_SUCH_CARD


@pytest.mark.parametrize(
    ("ancestor", "level"),
    [
        (0, Level.SWITCH),
        (10, Level.SWITCH),
        (20, Level.SWITCH),
        (30, Level.NUMA),
        (40, Level.NUMA),
        (50, Level.ANY),
    ],
)
def test_the_common_ancestor_gives_the_level(fake: Fake, ancestor: int, level: Level) -> None:
    driver = fake()
    driver.link(ancestor, 0, 2)
    with Nvml(driver.directory) as nvml:
        assert nvml.topology().tie("GPU-2", "GPU-0") == Tie(level)


def test_cards_of_one_numa_node_are_near_even_if_the_driver_sees_no_bridge(fake: Fake) -> None:
    driver = fake()
    driver.set("numa", -1, 3)
    with Nvml(driver.directory) as nvml:
        assert [card.numa for card in nvml.cards()] == [0, 0, 1, None]
        topology = nvml.topology()
    assert topology.level("GPU-0", "GPU-1") is Level.NUMA
    assert topology.level("GPU-2", "GPU-3") is Level.ANY


def test_direct_nvlinks_are_counted_by_the_bus_id_at_their_end(fake: Fake) -> None:
    driver = fake()
    for link, (one, other) in enumerate([(0, 1), (0, 1), (2, 3)]):
        driver.set("remote", other, one, link)
        driver.set("remote", one, other, link)
    with Nvml(driver.directory) as nvml:
        topology = nvml.topology()
    assert topology.tie("GPU-0", "GPU-1") == Tie(Level.NVLINK, 2)
    assert topology.tie("GPU-2", "GPU-3") == Tie(Level.NVLINK, 1)
    assert topology.level("GPU-1", "GPU-2") is Level.ANY


@pytest.mark.parametrize(("peer", "tie"), [(0, Tie(Level.NVLINK, 3)), (6, Tie(Level.ANY))])
def test_links_to_a_switch_tie_cards_that_reach_each_other_through_it(
    fake: Fake, peer: int, tie: Tie
) -> None:
    driver = fake()
    for link in range(4):
        driver.set("remote", 50, 0, link)
        if link:
            driver.set("remote", 50, 2, link)
    driver.set("p2p", peer)
    with Nvml(driver.directory) as nvml:
        topology = nvml.topology()
    assert topology.tie("GPU-0", "GPU-2") == tie
    assert topology.level("GPU-0", "GPU-3") is Level.ANY


def test_two_drivers_in_one_process_do_not_mix(fake: Fake) -> None:
    new, old = fake(), fake("-DOLD")
    with Nvml(new.directory) as first, Nvml(old.directory) as second, Nvml(new.directory) as third:
        reserves = [nvml.cards()[0].memory_reserved for nvml in (first, second, third)]
    assert reserves == [512 * MIB, 0, 512 * MIB]


def test_a_directory_without_a_driver_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"no libnvidia-ml\.so\.1 in .*name the directory"):
        Nvml(tmp_path)


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("nothing")
    with pytest.raises(Unusable, match="cannot be loaded"):
        Nvml(tmp_path)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [(9, "modprobe"), (18, "restart this machine"), (4, "group"), (999, "does not start")],
)
def test_a_driver_that_does_not_start_says_what_to_do(fake: Fake, answer: int, advice: str) -> None:
    driver = fake(f"-DINIT={answer}")
    with pytest.raises(Unusable, match=advice):
        Nvml(driver.directory)


def test_the_systems_driver_is_not_mistaken_for_one_that_is_open_already(fake: Fake) -> None:
    with Nvml(fake().directory), pytest.raises(Unusable, match="one of its own"):
        Nvml(None)


def test_use_of_a_card_by_process_in_permille(fake: Fake) -> None:
    driver = fake()
    with Nvml(driver.directory) as nvml:
        assert nvml.utilisation("GPU-0", 0) == ()  # NOT_FOUND: idle, which is no fault
        driver.set("uses", 3)
        assert nvml.utilisation("GPU-0", 1_000_000) == (
            Use(1001, 2_000_000, 200),
            Use(1002, 3_000_000, 300),
        )
        driver.set("uses", 300)  # more than there is room for at first
        found = nvml.utilisation("GPU-0", 0)
        assert (len(found), found[-1].permille) == (300, 1000)


@pytest.mark.parametrize("code", [3, 15, 999])
def test_a_card_without_figures_of_use_is_refused(fake: Fake, code: int) -> None:
    driver = fake()
    with Nvml(driver.directory) as nvml:
        driver.set("use_error", code)
        with pytest.raises(Refusal) as refused:
            nvml.utilisation("GPU-0", 0)
        assert refused.value.code is Code.UNAVAILABLE
    with Nvml(fake("-DOLD").directory) as nvml, pytest.raises(Refusal):
        nvml.utilisation("GPU-0", 0)


def test_the_systems_driver_is_found_by_the_loader_and_missed_in_plain_words(
    fake: Fake, tmp_path: Path
) -> None:
    """In a process of its own, where nothing is loaded yet; the loader looks where it is told to."""
    program = "from gaia_plugin.gpu.nvml import Nvml; print(len(Nvml(None).cards()))"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"LD_LIBRARY_PATH": str(fake().directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.stdout, found.stderr) == ("4\n", "")
    (tmp_path / "libnvidia-ml.so.1").write_text("nothing")
    lacking = subprocess.run(
        [sys.executable, "-c", program],
        env={"LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "This machine has no NVIDIA driver" in lacking.stderr


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"0000:0A:00.0", "00000000:0a:00.0"),
        ("00000000:0A:00.0", "00000000:0a:00.0"),
        (b"00000001:FF:1F.7\0\0", "00000001:ff:1f.7"),
        ("", ""),
    ],
)
def test_bus_ids_are_written_in_one_way(raw: bytes | str, text: str) -> None:
    assert bus_text(raw) == text
