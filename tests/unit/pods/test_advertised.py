"""What the kubelet is told: all devices, always the same; what is in use stays healthy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.agent.pods.advertised import lists
from gaia_plugin.deviceplugin import advertise
from gaia_plugin.ledger import CardCapacity


def cards(*sick: int, count: int = 4) -> list[CardCapacity]:
    return [CardCapacity(f"GPU-{i}", i, "sim", 64, healthy=i not in sick) for i in range(count)]


def test_all_devices_of_well_cards() -> None:
    told = lists(cards(), set(), set())
    assert [device.id for device in told.memory] == list(advertise.memory_ids(256))
    assert [device.id for device in told.cores] == list(advertise.core_ids(400))
    assert all(device.healthy for device in (*told.memory, *told.cores))


def test_the_same_list_whatever_is_in_use() -> None:
    assert lists(cards(), {"mem-00007"}, {"core-001"}) == lists(cards(), set(), set())


def test_what_was_handed_out_stays_although_its_card_is_not_there_any_more() -> None:
    told = lists(cards(count=1), {"mem-00200"}, set())
    assert {device.id: device.healthy for device in told.memory}["mem-00200"]


def test_a_card_that_tells_no_memory_has_no_cores_either() -> None:
    told = lists([*cards(count=1), CardCapacity("GPU-x", 1, "odd", 0, healthy=False)], set(), set())
    assert len(told.cores) == 100


@given(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 255)))
def test_sick_cards_take_free_devices_and_never_one_in_use(sick: set[int], used: set[int]) -> None:
    in_use = {advertise.memory_id(number) for number in used}
    told = lists(cards(*sick), in_use, set()).memory
    assert [device.id for device in told] == list(advertise.memory_ids(256))
    well = {device.id for device in told if device.healthy}
    assert in_use <= well
    assert len(well) == max(len(in_use), 64 * (4 - len(sick)))
