"""The pod agent on the simulated kubelet: every container gets its own slot, and gives it back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.api import models
from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT
from tests.kubelet.node_world import CORES, MEMORY, PLACEMENT, World, gather, uuid_of
from tests.support.kubelet import Container, Kind, Pod, until


def annotation(world: World, pod: Pod) -> Any:
    text = world.kube.pod(pod.name)["metadata"]["annotations"].get(PLACEMENT)
    return text and json.loads(text)


async def test_a_pod_gets_what_it_asks_for_and_gives_it_back(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    assert world.given(pod).cards == {uuid_of(0): (16, 25)}
    edits = pod.container("main").edits
    assert edits is not None
    assert edits.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert edits.device_nodes == {"/dev/nvidia0": "/dev/nvidia0"}
    record = world.records()[world.slot(pod)]
    assert (record.owner, record.name, record.label) == (pod.uid, "main", f"default/{pod.name}")
    await until(lambda: annotation(world, pod))
    assert annotation(world, pod) == {
        "uid": pod.uid, "node": "node1", "containers": {"main": {uuid_of(0): [16, 25]}},
    }  # fmt: skip
    await world.delete(pod)
    await world.empty()


@pytest.mark.parametrize(
    ("limits", "cards"),
    [
        ({MEMORY: 16}, {uuid_of(0): (16, 25)}),
        ({CORES: 100}, {uuid_of(0): (64, 100)}),
        ({MEMORY: 1, CORES: 1}, {uuid_of(0): (1, 1)}),
        ({MEMORY: 64, CORES: 100}, {uuid_of(0): (64, 100)}),
    ],
)
async def test_resources_may_be_asked_for_alone(
    world: World, limits: dict[str, int], cards: dict[str, tuple[int, int]]
) -> None:
    pod = await world.run(Pod.of(limits))
    assert world.given(pod).cards == cards
    assert len(pod.container("main").cdi_names) == len(limits)


@pytest.mark.parametrize("order", [(MEMORY, CORES), (CORES, MEMORY)])
async def test_the_two_calls_come_in_any_order(world: World, order: tuple[str, str]) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    world.show(pod)
    assert await world.kubelet.admit(pod, order=order)
    assert await world.kubelet.start(pod, order=reversed(order))
    world.check([pod])


async def test_each_container_of_a_pod_has_its_own(world: World) -> None:
    pod = Pod(
        [
            Container("side", {MEMORY: 8, CORES: 10}, Kind.SIDECAR),
            Container("main", {MEMORY: 16, CORES: 20}),
            Container("idle", {}),
            Container("more", {MEMORY: 8, CORES: 10}),
        ]
    )
    await world.run(pod)
    slots = {name: world.given(pod, name).slot for name in ("side", "main", "more")}
    assert slots == {name: world.slot(pod, name) for name in slots}
    assert world.given(pod, "main").cards == {uuid_of(0): (16, 20)}
    await until(lambda: set((annotation(world, pod) or {"containers": ()})["containers"]) == set(slots))
    pod.container("more").state = pod.container("more").state.ENDED
    world.kube.change(pod.name, {"spec": {"restartPolicy": "Never"}})
    world.report(pod)
    await until(lambda: set(world.records()) == {slots["side"], slots["main"]})
    await world.delete(pod)
    await world.empty()


async def test_a_container_starts_again_in_the_same_slot(world: World) -> None:
    world.cards.sizes = [16384] * 4
    await world.agent.sync()
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    before = world.given(pod), world.records()[world.slot(pod)]
    for _ in range(5):
        assert await world.kubelet.restart_container(pod)
        assert (world.given(pod), world.records()[world.slot(pod)]) == before


async def test_a_container_that_starts_again_begins_with_an_empty_usage_page(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    edits = pod.container("main").edits
    assert edits is not None
    usage = Path(edits.mounts["/run/gaia/usage"].source)
    empty = usage.read_bytes()
    usage.write_bytes(b"\xff" * len(empty))
    await until(lambda: (seen := world.agent.node.sight.pod(pod.uid)) and seen.status.phase == "Running")
    assert await world.kubelet.restart_container(pod)
    assert usage.read_bytes() == empty


async def test_sixty_four_pods_at_once_all_start_at_the_first_try(world: World) -> None:
    world.cards.sizes = [16384] * 8
    await world.agent.sync()
    await until(lambda: len(world.kubelet.devices.endpoints[MEMORY].healthy) == 8 * 64)
    pods = [Pod.of({MEMORY: 8, CORES: 12}) for _ in range(64)]
    for pod in pods:
        world.show(pod)
    await gather(*(world.kubelet.run(pod) for pod in pods))
    world.check(pods)
    assert {pod.container("main").tries for pod in pods} == {1}
    assert len({world.given(pod).slot for pod in pods}) == 64
    await gather(*(world.delete(pod) for pod in pods))
    await world.empty()


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({CORES: 25}, "without memory is not a slice: add how much"),
        ({MEMORY: 65}, "the largest card has 16 GiB: ask for at most 64 units"),
        ({MEMORY: 16, CORES: 150}, "ask for 100 % or 200 %"),
        ({CORES: 300}, "3 cards"),
    ],
)
async def test_what_cannot_be_is_refused_before_the_start_with_a_sentence(
    world: World, limits: dict[str, int], sentence: str
) -> None:
    world.cards.sizes = [16384] * 2
    await world.agent.sync()
    await until(lambda: len(world.kubelet.devices.endpoints[CORES].healthy) == 200)
    limits = {name: min(amount, 200 if name == CORES else 128) for name, amount in limits.items()}
    pod = Pod.of(limits)
    world.show(pod)
    if sentence == "3 cards":  # more than the kubelet has: a pod that lies to it
        world.kube.change(
            pod.name,
            {"spec": {"containers": [{"name": "main", "resources": {"limits": {CORES: "300"}}}]}},
        )
    assert await world.kubelet.admit(pod)
    assert not await world.kubelet.start(pod)
    assert sentence in pod.container("main").message
    assert world.records() == {}


@pytest.mark.parametrize(
    ("amount", "sentence"),
    [("9999999999999999999", "more than Kubernetes can count"), ("0.5", "Write a whole number from 1 on")],
)
async def test_an_amount_that_is_none_is_refused(world: World, amount: str, sentence: str) -> None:
    pod = Pod.of({MEMORY: 4})
    world.show(pod)
    limits = {"resources": {"limits": {MEMORY: amount}, "requests": {MEMORY: amount}}}
    world.kube.change(pod.name, {"spec": {"containers": [{"name": "main", **limits}]}})
    assert await world.kubelet.admit(pod)
    assert not await world.kubelet.start(pod)
    assert sentence in pod.container("main").message


async def test_a_plain_init_container_is_told_what_to_do_instead(world: World) -> None:
    pod = Pod([Container("prepare", {MEMORY: 4}, Kind.INIT), Container("main", {MEMORY: 4})])
    world.show(pod)
    assert await world.kubelet.admit(pod)
    assert not await world.kubelet.start(pod)
    assert "restartPolicy: Always" in pod.container("prepare").message
    assert world.records() == {}
    assert not list(world.cdi.iterdir())


async def test_a_call_that_is_given_up_leaves_nothing_half(world: World) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    world.show(pod)
    assert await world.kubelet.admit(pod)
    ids = world.kubelet.ids(pod)
    for milliseconds in range(25):
        call = asyncio.create_task(world.agent.node.prestart(MEMORY, ids[MEMORY]))
        await asyncio.sleep(milliseconds / 1000)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert await world.kubelet.start(pod)
    world.check([pod])
    assert len(world.records()) == 1


async def test_a_pod_that_never_starts_leaves_nothing(world: World) -> None:
    """Allocate of one resource succeeded, the other failed: no PreStart ever comes."""
    ids = frozenset({"core-000", "core-001"})
    name = world.agent.node.allocate(CORES, ids)
    assert world.records() == {}
    world.ahead = 601.0
    await world.agent.node.tidy_once()
    assert world.agent.core.allocations.by_ids(CORES, ids) == []
    assert name.startswith("gaia.io/slot=")


async def test_a_device_handed_out_twice_gives_nobody_anothers(world: World) -> None:
    first = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    second = Pod.of({MEMORY: 16, CORES: 50})
    world.show(second)
    assert await world.kubelet.admit(second, same_ids_as=first)
    await world.kubelet.until_running(second)
    world.check([first, second])
    assert world.given(first).cards == {uuid_of(0): (16, 25)}
    assert world.given(second).cards == {uuid_of(0): (16, 50)}


async def test_what_slots_grow_and_give_back_is_told_to_the_kubelet(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    node, slot = world.agent.node, world.slot(pod)
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64)
    record = world.records()[slot]
    more = models.Resize(memory=60 * MEMORY_UNIT)
    await node.do(node.core.ledger.amend, slot, pod.name, record.maximum.most(Share(60, 25)))
    await node.resize(slot, more, None)
    await until(lambda: world.kubelet.allocatable(MEMORY) == 20)  # its own IDs, and 4 for others
    await node.resize(slot, models.Resize(memory=4 * MEMORY_UNIT), None)
    await until(lambda: world.kubelet.allocatable(MEMORY) == 76)
    assert world.kubelet.allocatable(CORES) == 100
    second = await world.run(Pod.of({MEMORY: 60, CORES: 75}))
    world.check([second])


async def test_what_a_slot_does_not_give_back_is_not_free_for_the_kubelet_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await world.run(Pod.of({MEMORY: 60, CORES: 90}))
    node = world.agent.node
    (uuid,) = world.given(pod).cards
    world.cards.held[uuid] = {4711: 60 * MEMORY_UNIT}
    monkeypatch.setattr(node.core.directories.members, "contains", lambda _, pid: pid == 4711)
    await world.force_delete(pod)
    await until(lambda: world.records()[world.slot(pod)].releasing)
    await node.advertise_now()
    assert world.kubelet.allocatable(MEMORY) == 64
    node.leaving_seconds = 0.0
    await node.advertise_now()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 4)
    assert world.records()[world.slot(pod)].held.units == 60
    world.cards.held[uuid] = {}
    await world.empty()
    await node.advertise_now()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64)


async def test_cores_that_come_with_memory_are_told_to_the_kubelet(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 32}))
    await until(lambda: world.kubelet.allocatable(CORES) == 50)
    await world.delete(pod)
    await until(lambda: world.kubelet.allocatable(CORES) == 100)
