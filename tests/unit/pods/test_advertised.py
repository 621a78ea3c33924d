"""What the kubelet is told: what the ledger has left is free, and what is in use stays healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaia_plugin.agent.pods.advertised import Advertiser, Lists
from gaia_plugin.agent.pods.identity import Owner
from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.plugin import Device
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.ledger.allocations import Allocation
from gaia_plugin.shares import Share

MEMORY, CORES = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores"


def cards(*sick: int, count: int = 4) -> list[CardCapacity]:
    return [CardCapacity(f"GPU-{i}", i, "sim", 64, healthy=i not in sick) for i in range(count)]


def slot(uid: str, units: int, cores: int, target: Share | None = None) -> SlotRecord:
    held = Share(units, cores)
    part = SliceRecord("GPU-0", held, held if target is None else target, held)
    return SlotRecord(f"{uid}--main", uid, "main", 1, False, "hard", held, (part,), None, None, 0.0)


def rows(resource: str, *handed: tuple[str, range]) -> list[Allocation]:
    """Return what was handed out, in that order, newest first."""
    name = advertise.memory_id if resource == MEMORY else advertise.core_id
    made = [
        Allocation(resource, frozenset(map(name, numbers)), f"{place:016x}", uid, "main" if uid else "")
        for place, (uid, numbers) in enumerate(handed)
    ]
    return [replace(row, number=place) for place, row in enumerate(made)][::-1]


def told(
    known: list[CardCapacity],
    handed: list[Allocation] | None = None,
    slots: list[SlotRecord] | None = None,
    ended: set[Owner] | None = None,
) -> Lists:
    return Advertiser(MEMORY, CORES).lists(known, handed or [], slots or [], ended or set())


def well(devices: tuple[Device, ...]) -> set[str]:
    return {device.id for device in devices if device.healthy}


def test_all_devices_of_well_cards() -> None:
    all_free = told(cards())
    assert [device.id for device in all_free.memory] == list(advertise.memory_ids(256))
    assert [device.id for device in all_free.cores] == list(advertise.core_ids(400))
    assert all(device.healthy for device in (*all_free.memory, *all_free.cores))


@pytest.mark.parametrize(
    ("handed", "slots", "ended", "listed", "healthy"),
    [
        # a slot as large as its IDs, and one whose slot is still to be made
        ([("a", range(16))], [slot("a", 16, 25)], [], 64, 64),
        ([("a", range(16))], [], [], 64, 64),
        ([("", range(16))], [], [], 64, 64),
        # grown: its 16 IDs and 4 that are free
        ([("a", range(16))], [slot("a", 60, 25)], [], 64, 20),
        # shrunk: its 16 IDs, and 60 free ones although the node has only 64 numbers
        ([("a", range(16))], [slot("a", 4, 25)], [], 76, 76),
        # still draining: what it holds counts, not its target
        ([("a", range(16))], [slot("a", 60, 25, Share(4, 25))], [], 64, 20),
        # cores alone: it has memory, and no ID of it
        ([], [slot("a", 64, 100)], [], 64, 0),
        # overbooked after a fault: never below what is in use
        ([("a", range(16))], [slot("a", 70, 25)], [], 64, 16),
        # ended, and its pod goes on: its IDs stay out, and what it had is free
        ([("a", range(16))], [], [Owner("a", "main")], 80, 80),
        # of an answer that nobody came for and a newer one with the same IDs only the newer counts
        ([("", range(16)), ("a", range(16))], [slot("a", 16, 25)], [], 64, 64),
        # re-created while the first container still runs: both need room
        ([("a", range(16)), ("b", range(16))], [slot("a", 16, 25)], [], 64, 48),
    ],
)
def test_what_is_free_is_what_the_ledger_has_left(
    handed: list[tuple[str, range]], slots: list[SlotRecord], ended: list[Owner], listed: int, healthy: int
) -> None:
    memory = told(cards(count=1), rows(MEMORY, *handed), slots, set(ended)).memory
    assert (len(memory), len(well(memory))) == (listed, healthy)
    assert {advertise.memory_id(number) for _, numbers in handed for number in numbers} <= well(memory)


def test_a_pod_with_memory_alone_takes_cores_out_of_use() -> None:
    cores = told(cards(count=1), rows(MEMORY, ("a", range(32))), [slot("a", 32, 50)]).cores
    assert len(well(cores)) == 50


def test_what_was_handed_out_stays_although_its_card_is_not_there_any_more() -> None:
    memory = told(cards(count=1), rows(MEMORY, ("a", range(200, 201)))).memory
    assert "mem-00200" in well(memory)


def test_a_card_that_tells_no_memory_has_no_cores_either() -> None:
    odd = CardCapacity("GPU-x", 1, "odd", 0, healthy=False)
    assert len(told([*cards(count=1), odd]).cores) == 100


def test_nothing_is_made_anew_where_nothing_has_changed() -> None:
    advertiser, handed = Advertiser(MEMORY, CORES), rows(MEMORY, ("a", range(16)))
    first = advertiser.lists(cards(), handed, [])
    assert advertiser.lists(cards(), list(handed), [slot("a", 16, 0)]) is first
    assert advertiser.lists(cards(), handed, [slot("a", 17, 0)]) is not first


@given(st.sets(st.integers(0, 3)), st.sets(st.integers(0, 255)))
def test_sick_cards_take_free_devices_and_never_one_in_use(sick: set[int], used: set[int]) -> None:
    handed = rows(MEMORY, *((str(number), range(number, number + 1)) for number in used))
    slots = [slot(str(number), 1, 0) for number in used]
    memory = told(cards(*sick), handed, slots).memory
    assert [device.id for device in memory] == list(advertise.memory_ids(256))
    assert {advertise.memory_id(number) for number in used} <= well(memory)
    assert len(well(memory)) == max(len(used), 64 * (4 - len(sick)))


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60)), max_size=6))
def test_the_kubelet_hands_out_no_more_than_the_ledger_has(pods: list[tuple[int, int]]) -> None:
    """Each pod has so many IDs and holds so much; 0: it has no slot yet."""
    handed, slots, begin = [], [], 0
    for place, (ids, held) in enumerate(pods):
        handed.append((str(place), range(begin, begin + ids)))
        begin += ids
        if held:
            slots.append(slot(str(place), held, 0))
    memory = told(cards(), rows(MEMORY, *handed), slots).memory
    booked = sum(held if held else ids for ids, held in pods)
    assert len(well(memory)) - begin == max(0, 256 - booked)
