"""A snapshot becomes a page that a monitoring system can read, whatever is in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from gaia_plugin.metrics.collector import render
from gaia_plugin.metrics.families import FAMILIES, SLOT_STATES, WRONGS, labels_of
from gaia_plugin.metrics.snapshot import Part, SlotFigures, Timings, Watched
from gaia_plugin.metrics.tally import BOUNDS
from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT
from tests.unit.metrics.conftest import CARD, Told, full

Read = Callable[[bytes], Told]


def test_everything_is_told_with_its_kind_and_labels(read: Read) -> None:
    told = read(render(full()))
    for family in FAMILIES:
        assert told.kinds[family.name.removesuffix("_total")] == family.kind
        name = f"{family.name}_count" if family.kind == "histogram" else family.name
        for labels in told.labels(name):
            assert set(labels) == set(labels_of(family, on_node=True))
        assert told.labels(name), family.name
    others = {name for name in told.kinds if not name.startswith("process_")}
    assert others == {family.name.removesuffix("_total") for family in FAMILIES}


def test_a_slot_is_told_by_its_pod(read: Read) -> None:
    told = read(render(full()))
    whose = {"node": "node1", "namespace": "team", "pod": "trainer", "container": "main", "uid": "uid-1"}
    assert told.value("gaia_slot_memory_requested_bytes", **whose, card=CARD) == 16 * MEMORY_UNIT
    assert told.value("gaia_slot_memory_granted_bytes", **whose) == 8 * MEMORY_UNIT
    assert told.value("gaia_slot_memory_held_bytes", **whose) == 12 * MEMORY_UNIT
    assert told.value("gaia_slot_memory_used_bytes", **whose) == 700
    assert told.value("gaia_slot_compute_requested_ratio", **whose) == 0.25
    assert told.value("gaia_slot_compute_granted_ratio", **whose) == 0.1
    assert told.value("gaia_slot_compute_guarantee_ratio", **whose) == 0.1
    assert told.value("gaia_slot_compute_limit_ratio", **whose) == 0.5
    assert told.value("gaia_slot_compute_used_ratio", **whose) == 0.4
    assert told.value("gaia_slot_throttled_seconds_total", **whose) == 12.5
    states = {state: told.value("gaia_slot_state", **whose, state=state) for state in SLOT_STATES}
    assert states == {"making": 0, "applied": 0, "draining": 1, "releasing": 0}


def test_a_slot_of_a_single_machine_is_told_by_its_owner(read: Read) -> None:
    told = read(render(full(node="")))
    assert told.value("gaia_slot_memory_used_bytes", owner="alice", slot="a-slot", card=CARD) == 700
    assert told.labels("gaia_agent_build_info") == [{"version": "0.1.0"}]
    assert told.labels("gaia_unmanaged_processes") == []


def test_a_card_is_told(read: Read) -> None:
    told = read(render(full()))
    assert told.labels("gaia_card_info") == [
        {"node": "node1", "card": CARD, "model": "Played 24", "index": "0"}
    ]
    assert told.value("gaia_card_memory_capacity_bytes", card=CARD) == 94 * MEMORY_UNIT
    assert told.value("gaia_card_memory_free_bytes") == 82 * MEMORY_UNIT
    assert told.value("gaia_card_memory_used_bytes") == 1234
    assert told.value("gaia_card_memory_foreign_bytes") == 3 * MEMORY_UNIT
    assert told.value("gaia_card_compute_free_ratio") == 0.75
    assert told.value("gaia_card_healthy") == 1
    assert told.value("gaia_unmanaged_processes", kind="no_library") == 2


def test_nothing_wrong_is_0_and_not_missing(read: Read) -> None:
    told = read(render(replace(full(), watched=Watched())))
    assert told.all("gaia_unmanaged_processes", card=CARD) == [0] * len(WRONGS)
    assert told.all("gaia_stopped_containers_total") == [0] * len(WRONGS)
    assert told.value("gaia_card_memory_foreign_bytes") == 0
    assert told.all("gaia_library_processes") == []


def test_versions_that_tenants_make_up_are_not_all_told(read: Read) -> None:
    libraries = {f"9.9.{i}": 1 for i in range(1000)} | {"0.1.0": 5}
    told = read(render(replace(full(), watched=Watched(libraries=libraries))))
    assert told.value("gaia_library_processes", version="0.1.0") == 5
    assert told.value("gaia_library_processes", version="(others)") == 985
    assert len(told.all("gaia_library_processes")) == 17


def test_what_a_driver_does_not_say_is_not_told(read: Read) -> None:
    snapshot = full()
    cards = tuple(replace(card, used=None, healthy=False) for card in snapshot.cards)
    told = read(render(replace(snapshot, cards=cards)))
    assert told.all("gaia_card_memory_used_bytes") == []
    assert told.value("gaia_card_healthy") == 0


def test_a_pod_and_its_predecessor_of_the_same_name_are_two(read: Read) -> None:
    snapshot = full()
    (slot,) = snapshot.slots
    older = replace(slot, slot="older", owner="uid-0", state="releasing")
    told = read(render(replace(snapshot, slots=(older, slot))))
    assert len(told.all("gaia_slot_memory_held_bytes", pod="trainer")) == 2


def test_a_slot_whose_pod_is_not_known_is_told(read: Read) -> None:
    snapshot = full()
    (slot,) = snapshot.slots
    told = read(render(replace(snapshot, slots=(replace(slot, label=""),))))
    assert told.value("gaia_slot_memory_used_bytes", namespace="", pod="", uid="uid-1") == 700


@pytest.mark.parametrize(
    "owner", ['"', "\\", "a\nb", "{}=,", '"} 1\ngaia_card_healthy 0', "größe", "\u2028", " ", "#", "a" * 5000]
)
def test_a_name_can_hold_anything(read: Read, owner: str) -> None:
    snapshot = full(node="")
    (slot,) = snapshot.slots
    told = read(render(replace(snapshot, slots=(replace(slot, owner=owner),))))
    assert told.labels("gaia_slot_memory_used_bytes") == [{"owner": owner, "slot": "a-slot", "card": CARD}]
    assert told.value("gaia_card_healthy") == 1


def test_buckets_add_up(read: Read) -> None:
    counts = tuple(range(len(BOUNDS) + 1))
    snapshot = full()
    events = replace(snapshot.events, resize_times=Timings(counts, 7.5))
    told = read(render(replace(snapshot, events=events)))
    bounds = [*map(str, BOUNDS), "+Inf"]
    values = [told.value("gaia_resize_duration_seconds_bucket", le=bound) for bound in bounds]
    assert values == [sum(counts[: i + 1]) for i in range(len(counts))]
    assert told.value("gaia_resize_duration_seconds_count") == sum(counts)
    assert told.value("gaia_resize_duration_seconds_sum") == 7.5


def test_an_agent_with_nothing_tells_what_it_did_not_do(read: Read) -> None:
    told = read(render(replace(full(), slots=(), cards=(), watched=None)))
    assert told.all("gaia_slot_state") == told.all("gaia_card_info") == []
    assert told.value("gaia_refusals_total", code="over_maximum") == 0
    assert all(math.isfinite(value) for value in told.samples.values())


def test_every_page_is_alone(read: Read) -> None:
    assert read(render(full())).samples.keys() == read(render(full())).samples.keys()


def test_a_slot_on_two_cards_is_told_on_each(read: Read) -> None:
    parts = tuple(Part(f"GPU-{i}", Share(4, 10), Share(4, 10), Share(4, 10), used=i) for i in range(2))
    slot = SlotFigures("a-slot", "alice", "applied", parts)
    told = read(render(replace(full(node=""), slots=(slot,))))
    assert [told.value("gaia_slot_memory_used_bytes", card=f"GPU-{i}") for i in range(2)] == [0, 1]
    assert len(told.all("gaia_slot_state", state="applied")) == 1
