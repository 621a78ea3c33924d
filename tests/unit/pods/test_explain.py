"""Why a pod has what it has: from ledger, cards, reservations and what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gaia_plugin.agent.pods.explain import Admitted, Scene, explain, explain_gone
from gaia_plugin.agent.pods.identity import Life
from gaia_plugin.agent.pods.refusals import Refused
from gaia_plugin.agent.pods.status import write_desired
from gaia_plugin.agent.views import Measured, Room, slot_view
from gaia_plugin.api import models
from gaia_plugin.counted import Holder
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.gpunode import DesiredStatus
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.pods import Container, Pod, PodStatus, Resources, Spec
from gaia_plugin.ledger import CardCapacity, SlotRecord
from gaia_plugin.ledger.records import SliceRecord
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import GIB, MEMORY_UNIT

MEMORY, CORES = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores"
CARDS = (CardCapacity("GPU-a", 0, "A100", 64), CardCapacity("GPU-b", 1, "A100", 64))


def a_pod(limits: Mapping[str, str], name: str = "train", uid: str = "new", **annotations: str) -> Pod:
    keys = {f"gaia.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = Spec(containers=(Container("main", Resources(dict(limits), dict(limits))),))
    return Pod(Metadata(name, uid, "ml", annotations=keys), spec, PodStatus())


def a_slot(
    card: str,
    held: Share,
    uid: str = "old",
    label: str = "ml/other",
    target: Share | None = None,
    **more: Any,
) -> SlotRecord:
    part = SliceRecord(card, held, held if target is None else target, held)
    given = {
        "slot": f"{uid}--main", "owner": uid, "name": "main", "generation": 1, "releasing": False,
        "compute": "hard", "maximum": held, "slices": (part,), "process": None, "process_start": None,
        "created": 1.0, "label": label,
    }  # fmt: skip
    return SlotRecord(**{**given, **more})


def scene(*records: SlotRecord, reach: Share = NOTHING, **more: Any) -> Scene:
    room = Room({card.uuid: card for card in CARDS}, {})
    views = {record.slot: slot_view(record, room, reach, Measured()) for record in records}
    return Scene(**{"node": "n1", "cards": CARDS, "records": records, "views": views, "now": 100.0, **more})


def of(pod: Pod, known: Scene, admitted: Admitted | None = None) -> models.ContainerReason:
    told = explain(pod, {} if admitted is None else {"main": admitted}, known)
    (only,) = told.containers
    return only


def refused(sentence: str = "No.", first: float = 60.0, last: float = 99.0) -> Refused:
    return Refused(Refusal(Code.CARD_FULL, sentence), first, last)


def test_a_pod_that_waits_is_told_which_card_lacks_what_and_who_has_it() -> None:
    known = scene(
        a_slot("GPU-a", Share(40, 30)),
        a_slot("GPU-b", Share(10, 80), "more", "ml/more"),
        reserved={Holder("soon", "main"): {"GPU-b": Share(4, 10)}},
        titles={"soon": "ml/soon"},
    )
    told = of(a_pod({MEMORY: "32", CORES: "50"}), known, Admitted(Life.LIVING, refused(), left=79.6))
    assert told.state == "waiting"
    assert told.asked == models.Amounts(memory=8 * GIB, cores=50)
    first, second = told.cards
    assert first.free == models.Amounts(memory=24 * MEMORY_UNIT, cores=70)
    assert first.lacks == models.Amounts(memory=8 * MEMORY_UNIT, cores=0)
    assert [(each.name, each.kind) for each in first.holders] == [("ml/other:main", "slot")]
    assert second.lacks == models.Amounts(memory=0, cores=40)
    assert [(each.name, each.kind, each.amounts.cores) for each in second.holders] == [
        ("ml/more:main", "slot", 80),
        ("ml/soon:main", "reservation", 10),
    ]
    assert told.best == models.Amounts(memory=24 * MEMORY_UNIT, cores=50)
    assert "the largest free slice is 6 GiB and 70 % compute" in told.sentence
    assert told.sentence.endswith("Without room the pod is deleted in 80 seconds.")
    assert told.refused == models.LastRefusal(code="card_full", sentence="No.", ago=1.0, since=40.0)


def test_what_is_reserved_for_a_pod_is_room_for_it() -> None:
    known = scene(reserved={Holder("new", "main"): {"GPU-a": Share(64, 100), "GPU-b": Share(64, 100)}})
    told = of(a_pod({MEMORY: "64", CORES: "100"}), known)
    assert told.state == "pending"
    assert "There is room for it here" in told.sentence
    assert all(card.holders == () and card.lacks.memory == 0 for card in told.cards)


def test_what_programs_without_a_slice_use_is_said() -> None:
    told = of(a_pod({MEMORY: "64", CORES: "10"}), scene(foreign={"GPU-a": 3}))
    first, second = told.cards
    assert first.lacks == models.Amounts(memory=3 * MEMORY_UNIT, cores=0)
    assert [(each.kind, each.used) for each in first.holders] == [("unmanaged", 3 * MEMORY_UNIT)]
    assert second.holders == ()


def test_a_reservation_of_a_container_that_has_its_slot_counts_for_nothing() -> None:
    known = scene(a_slot("GPU-a", Share(8, 10)), reserved={Holder("old", "main"): {"GPU-a": Share(64, 100)}})
    told = of(a_pod({MEMORY: "32", CORES: "50"}), known)
    assert told.cards[0].free == models.Amounts(memory=56 * MEMORY_UNIT, cores=90)
    assert len(told.cards[0].holders) == 1


@pytest.mark.parametrize(
    ("limits", "annotations", "words"),
    [
        ({MEMORY: "0.5"}, {}, "whole number"),
        ({CORES: "25"}, {}, "Memory is the limit"),
        ({MEMORY: "65", CORES: "1"}, {}, "ask for at most 64 units"),
        ({MEMORY: "8"}, {"gpu_model": "H100"}, "There is no card of model H100 here"),
        ({CORES: "300"}, {}, "there are only 2 here"),
        ({MEMORY: "8"}, {"vgpu_max_memory": "4"}, "less than the 2 GiB"),
    ],
)
def test_what_can_never_be_had_is_said_to_be_invalid(
    limits: dict[str, str], annotations: dict[str, str], words: str
) -> None:
    told = of(a_pod(limits, **annotations), scene())
    assert told.state == "invalid"
    assert words in told.sentence


def test_a_card_of_another_model_or_a_sick_one_says_so() -> None:
    cards = (CardCapacity("GPU-a", 0, "A100", 64, healthy=False), CardCapacity("GPU-b", 1, "L40S", 64))
    known = scene(cards=cards, troubles={"GPU-a": "XID 79."})
    first, second = of(a_pod({MEMORY: "8"}, gpu_model="A100"), known).cards
    assert first.trouble == "XID 79."
    assert "L40S" in second.trouble


def test_a_slot_says_how_far_it_could_go_and_what_its_card_lacks() -> None:
    mine = a_slot("GPU-a", Share(16, 25), "new", "ml/train", maximum=Share(48, 50))
    other = a_slot("GPU-a", Share(40, 60))
    told = of(a_pod({MEMORY: "16"}), scene(mine, other, reach=Share(24, 40)))
    assert told.state == "applied"
    assert told.slot is not None
    assert told.maximum == models.Amounts(memory=48 * MEMORY_UNIT, cores=50)
    assert told.best == models.Amounts(memory=24 * MEMORY_UNIT, cores=40)
    assert "its card has room for 6 GiB and 40 % compute now" in told.sentence
    (card,) = told.cards
    assert card.lacks == models.Amounts(memory=24 * MEMORY_UNIT, cores=10)
    assert [each.name for each in card.holders] == ["ml/other:main"]


@pytest.mark.parametrize(
    ("more", "state", "words"),
    [
        ({"target": NOTHING}, "making", "booked"),
        ({"target": Share(8, 25)}, "draining", "Its limit is 2 GiB now."),
        ({"target": NOTHING, "releasing": True}, "releasing", "The slot has ended"),
        ({}, "applied", "all that its pod may have"),
    ],
)
def test_a_slot_is_told_in_each_of_its_states(more: dict[str, Any], state: str, words: str) -> None:
    mine = a_slot("GPU-a", Share(16, 25), "new", "ml/train", **more)
    told = of(a_pod({MEMORY: "16"}), scene(mine))
    assert told.state == state
    assert words in told.sentence


def test_an_ended_container_and_one_that_asks_for_nothing() -> None:
    assert of(a_pod({MEMORY: "16"}), scene(), Admitted(Life.ENDED)).state == "ended"
    told = explain(a_pod({"cpu": "1"}), {}, scene())
    assert told.containers == ()
    assert told.sentence == "None of its containers asks for a slice."


def test_a_predecessor_of_the_same_name_and_a_doubt_are_said() -> None:
    before = a_slot("GPU-a", Share(16, 25), "before", "ml/train")
    told = explain(a_pod({MEMORY: "16"}), {}, scene(before, doubt="Not yet."))
    assert told.sentence == "Not yet. An earlier pod of this name still holds 4 GiB and 25 % compute."


def test_what_waits_for_the_cluster_is_not_told_that_it_could_start() -> None:
    waits = explain(a_pod({MEMORY: "16"}), {}, scene(doubt="No API server."))
    assert waits.sentence == "No API server."
    assert waits.containers[0].best is None
    assert waits.containers[0].sentence == "There is room for it here, but nothing starts on this node now."
    running = a_slot("GPU-a", Share(16, 25), "new", "ml/train")
    assert (
        explain(a_pod({MEMORY: "16"}), {}, scene(running, doubt="No API server.")).sentence
        == "No API server."
    )


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Deferred", ' The annotation vgpu-desired {"memory":"8GiB"} is Deferred: Only 1 GiB is free.'),
        ("Applied", ""),
    ],
)
def test_a_size_that_was_asked_for_in_vain_is_said(state: Any, said: str) -> None:
    desired = DesiredStatus('{"memory":"8GiB"}', state, "Only 1 GiB is free." if said else "")
    slot = a_slot("GPU-a", Share(16, 25), "new", "ml/train", desired=write_desired(desired))
    told = of(a_pod({MEMORY: "16"}), scene(slot))
    assert told.sentence.endswith(f"are in force.{said} That is all that its pod may have.")


def test_a_pod_that_is_gone_is_told_by_what_is_left_of_it() -> None:
    left = a_slot("GPU-a", Share(16, 25), "before", "ml/train", target=NOTHING, releasing=True)
    told = explain_gone("ml/train", scene(left))
    assert told is not None
    assert (told.phase, told.containers[0].state) == ("Gone", "releasing")
    assert explain_gone("ml/none", scene(left)) is None


def test_a_node_without_cards_is_a_sentence() -> None:
    told = of(a_pod({MEMORY: "16"}), scene(cards=()))
    assert told.state == "invalid"
    assert told.sentence == "There is no GPU here that could be shared."
