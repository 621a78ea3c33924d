"""Sizes that operators ask for by an annotation, and what is told on the pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.kubelet.resizing import DESIRED, agreed, booked, growing, promised, resize, seen
from tests.support.kubelet import Container, Pod, until


def wish(world: World, pod: Pod, desired: Any) -> None:
    """Write the annotation as an operator does."""
    text = desired if isinstance(desired, str) or desired is None else json.dumps(desired)
    world.kube.change(pod.name, {"metadata": {"annotations": {DESIRED: text}}})


def said(world: World, pod: Pod, reason: str) -> list[str]:
    """The notes of the events of a reason on a pod."""
    return [
        event["note"]
        for event in world.kube.events
        if event["reason"] == reason and event["regarding"]["uid"] == pod.uid
    ]


def outcome(world: World, pod: Pod) -> tuple[str, str] | None:
    """What the object says became of it: state and message."""
    slot = next((slot for slot in seen(world).status.slots if slot.uid == pod.uid), None)
    return None if slot is None or slot.desired is None else (slot.desired.state, slot.desired.message)


async def test_an_annotation_changes_the_size_once(world: World) -> None:
    pod = await world.run(growing(16, 25))
    wish(world, pod, {"memory": "8GiB", "cores": 50})
    await until(lambda: booked(world, pod) == (32, 32))
    await until(lambda: outcome(world, pod) == ("Applied", ""))
    await until(lambda: said(world, pod, "Resized"))
    assert said(world, pod, "Resized") == [
        "Container main: 4 GiB and 25 % became 8 GiB and 50 %, as an operator's annotation asked."
    ]
    await resize(world, pod, 8)
    await agreed(world, pod)
    await world.restart()
    await world.agent.node.admission.reconciled.wait()
    await agreed(world, pod)
    await world.agent.node.desires.round()
    assert booked(world, pod) == (8, 8), "the old wish is not repeated"
    wish(world, pod, {"memory": "10GiB"})
    await until(lambda: booked(world, pod) == (40, 40))


async def test_what_the_user_asks_for_is_told_too(world: World) -> None:
    pod = await world.run(growing(16, 25))
    await resize(world, pod, 32)
    await until(lambda: said(world, pod, "Resized"))
    assert said(world, pod, "Resized") == [
        "Container main: 4 GiB and 25 % became 8 GiB and 25 %, as its user asked."
    ]
    event = next(event for event in world.kube.events if event["reason"] == "Resized")
    assert (event["type"], event["action"]) == ("Normal", "Resize")
    await resize(world, pod, 32)
    await agreed(world, pod)
    assert len(said(world, pod, "Resized")) == 1, "nothing has changed"


async def test_without_room_it_waits_for_room(world: World) -> None:
    first, second = await world.run(growing(32, 10)), await world.run(growing(16, 10))
    wish(world, second, {"memory": "12GiB"})
    await until(lambda: (found := outcome(world, second)) is not None and found[0] == "Deferred")
    assert "you can have up to 8 GiB in total" in outcome(world, second)[1]  # type: ignore[index]
    await until(lambda: said(world, second, "ResizeDeferred"))
    assert "tried again" in said(world, second, "ResizeDeferred")[0]
    assert booked(world, second) == (16, 16)
    await resize(world, first, 30)
    world.ahead += 60.0
    await until(lambda: "up to 8.5 GiB" in outcome(world, second)[1])  # type: ignore[index]
    assert len(said(world, second, "ResizeDeferred")) == 1, "what the card lacks changes all the time"
    await resize(world, first, 8)
    world.ahead += 1.0
    await until(lambda: booked(world, second) == (48, 48))
    await until(lambda: outcome(world, second) == ("Applied", ""))
    await agreed(world, first, second)


async def test_room_that_is_reserved_is_none(world: World) -> None:
    pod = await world.run(growing(32, 10))
    await agreed(world, pod)
    world.kube.reserve(promised("other", 16, 10))
    wish(world, pod, {"memory": "16GiB"})
    await until(lambda: (found := outcome(world, pod)) is not None and found[0] == "Deferred")
    await until(lambda: booked(world, pod) == (32, 32))
    world.kube.reserve()
    world.ahead += 120.0
    await until(lambda: booked(world, pod) == (64, 64))


@pytest.mark.parametrize(
    ("desired", "sentence"),
    [
        ({"memory": "17GiB"}, "at most 16 GiB"),
        ("8GiB", "Write it as"),
        ({"other": {"memory": "8GiB"}}, "No container 'other'"),
    ],
)
async def test_what_cannot_be_is_told(world: World, desired: Any, sentence: str) -> None:
    pod = await world.run(growing(16, 25))
    wish(world, pod, desired)
    await until(lambda: outcome(world, pod))
    state, message = outcome(world, pod) or ("", "")
    assert state == "Infeasible"
    assert sentence in message
    await until(lambda: said(world, pod, "ResizeInfeasible"))
    assert booked(world, pod) == (16, 16)
    wish(world, pod, {"memory": "8GiB"})
    await until(lambda: booked(world, pod) == (32, 32))


async def test_each_container_is_named_where_there_are_several(world: World) -> None:
    both = [Container(name, {MEMORY: 8, CORES: 10}) for name in ("one", "two")]
    pod = Pod(both, annotations={"gaia.io/vgpu-max-memory": "32"})
    await world.run(pod)
    wish(world, pod, {"memory": "4GiB"})
    await until(lambda: len(said(world, pod, "ResizeInfeasible")) == 2)
    assert "one or two" in said(world, pod, "ResizeInfeasible")[0]
    wish(world, pod, {"two": {"memory": "4GiB"}})
    await until(lambda: world.records()[world.slot(pod, "two")].target.units == 16)
    assert world.records()[world.slot(pod, "one")].target.units == 8


async def test_a_wish_that_is_for_another_container_now_is_forgotten(world: World) -> None:
    other = await world.run(growing(32, 10))
    both = [Container(name, {MEMORY: 8, CORES: 10}) for name in ("one", "two")]
    pod = Pod(both, annotations={"gaia.io/vgpu-max-memory": "64"})
    await world.run(pod)
    wish(world, pod, {"one": {"memory": "16GiB"}})
    await until(lambda: (found := outcome(world, pod)) is not None and found[0] == "Deferred")
    wish(world, pod, {"two": {"memory": "1GiB"}})
    await until(lambda: world.records()[world.slot(pod, "two")].target.units == 4)
    await until(lambda: outcome(world, pod) is None)
    await resize(world, other, 8)
    world.ahead += 60.0
    await world.agent.node.desires.round()
    assert world.records()[world.slot(pod, "one")].target.units == 8


async def test_a_wish_that_is_taken_away_is_forgotten(world: World) -> None:
    pod = await world.run(growing(16, 25))
    wish(world, pod, {"memory": "8GiB"})
    await until(lambda: outcome(world, pod) == ("Applied", ""))
    wish(world, pod, None)
    await until(lambda: outcome(world, pod) is None)
    await resize(world, pod, 8)
    wish(world, pod, {"memory": "8GiB"})
    await until(lambda: booked(world, pod) == (32, 32))


async def test_a_shrink_below_use_drains(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = await world.run(growing(32, 25))
    monkeypatch.setattr(world.agent.core.directories.members, "contains", lambda _, pid: pid == 4711)
    world.cards.held[uuid_of(0)] = {4711: 24 << 28}
    wish(world, pod, {"memory": "2GiB"})
    await until(lambda: booked(world, pod) == (8, 24))
    await until(lambda: outcome(world, pod) == ("Applied", ""))
    await until(lambda: "goes back to the others" in "".join(said(world, pod, "Resized")))
    world.cards.held[uuid_of(0)] = {}
    await agreed(world, pod)
