from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.plugin import Device
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2
from gaia_plugin.errors import Unusable
from gaia_plugin.units import MIB


def shown(devices: tuple[Device, ...]) -> str:
    """One letter for each device: healthy or not, and its number."""
    return " ".join(f"{'+' if device.healthy else '-'}{int(device.id[4:])}" for device in devices)


@pytest.mark.parametrize(
    ("total", "free", "in_use", "right"),
    [
        (4, 4, set(), "+0 +1 +2 +3"),
        (4, 0, set(), "-0 -1 -2 -3"),
        (4, 2, {1}, "+0 +1 +2 -3"),
        (4, 0, {0, 1, 2, 3}, "+0 +1 +2 +3"),
        # slots gave two units back while their IDs stay out
        (4, 2, {0, 1, 2, 3}, "+0 +1 +2 +3 +4 +5"),
        # one of those extra IDs is handed out: the next list has it in use, and another in its place
        (4, 1, {0, 1, 2, 3, 5}, "+0 +1 +2 +3 +4 +5"),
        (4, 0, {0, 5}, "+0 -1 -2 -3 +5"),
        # slots grew past their IDs
        (4, 1, {0}, "+0 +1 -2 -3"),
        # the cards are gone, the container is not
        (0, 0, {2}, "+2"),
        (0, 0, set(), ""),
    ],
)
def test_which_ids_are_listed_and_healthy(total: int, free: int, in_use: set[int], right: str) -> None:
    used = {advertise.memory_id(number) for number in in_use}
    assert shown(advertise.devices(advertise.memory_id, total, free, used)) == right


@given(st.integers(0, 60), st.integers(0, 80), st.sets(st.integers(0, 70)))
def test_the_healthy_free_are_as_many_as_may_be_and_ids_in_use_never_leave(
    total: int, free: int, numbers: set[int]
) -> None:
    in_use = {advertise.core_id(number) for number in numbers}
    devices = advertise.devices(advertise.core_id, total, free, in_use)
    ids = [device.id for device in devices]
    assert ids == sorted(set(ids))
    assert sum(device.healthy for device in devices if device.id not in in_use) == free
    assert {device.id for device in devices if device.healthy} >= in_use
    assert set(ids) >= set(advertise.core_ids(total))


@pytest.mark.parametrize(
    ("total", "held", "waiting", "right"), [(64, 0, 0, 64), (64, 16, 8, 40), (64, 60, 8, 0)]
)
def test_what_may_be_handed_out(total: int, held: int, waiting: int, right: int) -> None:
    assert advertise.healthy_free(total, held, waiting) == right


def test_ids_carry_a_number_and_no_card() -> None:
    assert advertise.memory_ids(3) == ("mem-00000", "mem-00001", "mem-00002")
    assert advertise.core_ids(2) == ("core-000", "core-001")


def test_eight_large_cards_fit_and_a_unit_of_1_mib_does_not() -> None:
    """Case C05."""
    memory = 8 * 143_771
    advertise.check_size(8 * (143_771 // 256))
    with pytest.raises(Unusable, match=r"1150168 device IDs.* above 4 MiB\. A unit of 16 MiB fits\.") as said:
        advertise.check_size(memory, unit=MIB)
    fitting = int(str(said.value).split("A unit of ")[1].split()[0])
    advertise.check_size(-(-memory // fitting), unit=fitting * MIB)


@pytest.mark.parametrize("units", [1, 4488, 50_000, 50_001])
def test_the_size_is_that_of_the_longest_message(units: int) -> None:
    listed = [api_pb2.Device(ID=each, health="Unhealthy") for each in advertise.memory_ids(2 * units)]
    encoded = api_pb2.ListAndWatchResponse(devices=listed).SerializeToString()
    estimate = advertise._list_bytes(units)
    assert len(encoded) <= estimate <= len(encoded) + 2 * units
