"""What a node says of itself."""

from __future__ import annotations

import msgspec
import pytest

from gaia_plugin.agent.pods import status as statuses
from gaia_plugin.agent.pods.status import Facts, Sample
from gaia_plugin.counted import Holder
from gaia_plugin.gpu import Topology
from gaia_plugin.gpu.topology import Level, Tie
from gaia_plugin.kube import gpunode
from gaia_plugin.kube.gpunode import Amounts, Condition, DesiredStatus, GpuNode, Link, Status
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import NOTHING, Share

A, B = "GPU-a", "GPU-b"
CARDS = (CardCapacity(A, 0, "Card", 64), CardCapacity(B, 1, "Card", 32, healthy=False))


def slot(
    target: int = 8, held: int = 8, *, uid: str = "uid", releasing: bool = False, desired: str = ""
) -> SlotRecord:
    part = SliceRecord(A, Share(8, 10), Share(target, 10 if target else 0), Share(held, 10 if held else 0))
    return SlotRecord(
        f"{uid}--main", uid, "main", 3, releasing, "elastic", Share(64, 100), (part,), None, None, 0.0,
        label="lab/p", desired=desired,
    )  # fmt: skip


def build(*slots: SlotRecord, **more: object) -> Status:
    facts = Facts(CARDS, slots, **more)  # type: ignore[arg-type]
    return statuses.build(facts, {}, ready=True, heartbeat="2026-11-29T12:00:00Z")


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (slot(8, 8), "Applied"),
        (slot(8, 16), "Draining"),
        (slot(0, 8), "Making"),
        (slot(0, 8, releasing=True), "Releasing"),
        (slot(0, 0, releasing=True), "Releasing"),
    ],
)
def test_the_state_of_a_slot(record: SlotRecord, state: str) -> None:
    (said,) = build(record).slots
    assert said.state == state
    assert (said.uid, said.container, said.pod, said.generation) == ("uid", "main", "lab/p", 3)
    assert (said.compute, said.maximum.share) == ("elastic", Share(64, 100))
    assert said.slices[0].held.share == record.slices[0].held


def test_both_sides_find_the_same_free() -> None:
    reserved = {Holder("uid", "main"): {A: Share(40, 40)}, Holder("next", "main"): {A: Share(16, 20)}}
    facts = Facts(CARDS, (slot(8, 24),))
    said = statuses.build(facts, reserved, ready=True, heartbeat="")
    assert said.cards[0].free.share == Share(24, 70)
    reservations = tuple(
        gpunode.Reservation(holder.uid, holder.container, card, Amounts.of(share))
        for holder, parts in reserved.items()
        for card, share in parts.items()
    )
    node = GpuNode(Metadata("n", "u"), gpunode.Spec(reservations), said)
    assert gpunode.free(node)[A] == Share(24, 70)


def test_free_is_never_below_zero() -> None:
    reserved = {Holder("next", "main"): {A: Share(64, 100)}}
    said = statuses.build(Facts(CARDS, (slot(8, 24),)), reserved, ready=True, heartbeat="")
    assert said.cards[0].free.share == NOTHING


def test_cards_say_how_they_are_and_how_they_are_linked() -> None:
    topology = Topology.of([(A, B, Tie(Level.NVLINK, 4))])
    first, second = build(topology=topology, troubles={B: "It fell off the bus."}).cards
    assert (first.links, second.links) == ((Link(B, "NVLink", 4),), (Link(A, "NVLink", 4),))
    assert (first.healthy, first.reason) == (True, "")
    assert (second.healthy, second.reason) == (False, "It fell off the bus.")
    assert build().cards[1].reason


def test_what_is_measured_is_not_what_is_decided() -> None:
    facts = Facts(CARDS, (slot(),))
    sample = Sample({A: (1 << 20) + 1}, {"uid--main": {A: 5 << 20}})
    one = statuses.build(facts, {}, ready=True, heartbeat="now", sample=sample)
    assert (one.cards[0].used_mi_b, one.slots[0].slices[0].used_mi_b) == (2, 5)
    assert statuses.same(one, statuses.build(facts, {}, ready=True, heartbeat="then"))
    assert not statuses.same(one, statuses.build(facts, {}, ready=False, heartbeat="now"))
    more = statuses.build(Facts(CARDS, (slot(8, 9),)), {}, ready=True, heartbeat="now")
    assert not statuses.same(one, more)
    condition = Condition("Odd", "True", "Because")
    other = statuses.build(facts, {}, ready=True, heartbeat="now", conditions=(condition,))
    assert not statuses.same(one, other)


def test_the_columns() -> None:
    assert build(slot()).summary == gpunode.Summary(
        cards="1 of 2", memory="14 GiB of 16 GiB", cores="90 % of 100 %", largest="14 GiB and 90 % compute"
    )
    nothing = statuses.build(Facts((), ()), {}, ready=True, heartbeat="")
    assert nothing.summary.largest == "0 MiB and 0 % compute"


def test_what_was_desired_is_read_back_and_damage_is_nothing() -> None:
    desired = DesiredStatus('{"memory":"8GiB"}', "Deferred", "No room.")
    text = statuses.write_desired(desired)
    assert build(slot(desired=text)).slots[0].desired == desired
    assert statuses.read_desired("{") is None
    assert statuses.read_desired('{"text": 1}') is None
    assert statuses.write_desired(None) == ""


def test_notes_are_told_and_cut() -> None:
    said = build(slot(), notes={"uid--main": "x" * 5000})
    assert len(said.slots[0].message) == 1000
    assert msgspec.json.decode(msgspec.json.encode(said), type=Status) == said
