"""Where a container is put: as its annotation says if that can be believed, else as the node says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kubelet.node_world import CORES, MEMORY, PLACEMENT, World, uuid_of
from tests.support.kubelet import Pod, until


@pytest.fixture
async def four(world: World) -> World:
    """Four cards of 16 GiB; the node's own choice for the first pod is card 0."""
    world.cards.sizes = [16384] * 4
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 256)
    return world


def placement(pod: Pod, **changed: Any) -> str:
    told = {"uid": pod.uid, "node": "node1", "containers": {"main": {uuid_of(2): [16, 25]}}}
    return json.dumps({**told, **changed})


async def run(world: World, pod: Pod, text: str) -> Pod:
    pod.annotations[PLACEMENT] = text
    return await world.run(pod)


def written(world: World, pod: Pod) -> Any:
    return json.loads(world.kube.pod(pod.name)["metadata"]["annotations"][PLACEMENT])


async def test_a_placement_that_can_be_believed_is_obeyed(four: World) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    await run(four, pod, placement(pod))
    assert four.given(pod).cards == {uuid_of(2): (16, 25)}
    assert not [each for each in four.kube.asked if each.method == "PATCH"]


@pytest.mark.parametrize(
    "forged",
    [
        {"uid": "11111111-2222-3333-4444-555555555555"},
        {"node": "node2"},
        {"containers": {"main": {uuid_of(9): [16, 25]}}},
        {"containers": {"main": {uuid_of(2): [60, 25]}}},
        {"containers": {"main": {uuid_of(2): [16, 99]}}},
        {"containers": {"main": {uuid_of(2): [8, 12], uuid_of(3): [8, 13]}}},
        {"containers": {"other": {uuid_of(2): [16, 25]}}},
        {"containers": {"main": {uuid_of(2): [-16, 25]}}},
        {"more": 1},
    ],
    ids=["uid", "node", "card of another node", "memory", "cores", "cards", "container", "negative", "more"],
)
async def test_what_is_forged_or_stale_is_ignored_and_put_right(four: World, forged: dict[str, Any]) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    await run(four, pod, placement(pod, **forged))
    assert four.given(pod).cards == {uuid_of(0): (16, 25)}
    await until(lambda: written(four, pod)["containers"].get("main") == {uuid_of(0): [16, 25]})
    assert (written(four, pod)["uid"], written(four, pod)["node"]) == (pod.uid, "node1")


@pytest.mark.parametrize("text", ["", "yes", "[]", "{}", '{"uid": 1}', "{" * 5000])
async def test_nonsense_is_ignored(four: World, text: str) -> None:
    pod = await run(four, Pod.of({MEMORY: 16, CORES: 25}), text)
    assert four.given(pod).cards == {uuid_of(0): (16, 25)}


async def test_a_card_that_is_full_is_left_for_another_and_said_so(four: World) -> None:
    first = Pod.of({MEMORY: 60, CORES: 80})
    await run(four, first, placement(first, containers={"main": {uuid_of(2): [60, 80]}}))
    second = Pod.of({MEMORY: 16, CORES: 25})
    await run(four, second, placement(second))
    (card,) = four.given(second).cards
    assert card != uuid_of(2)
    await until(lambda: written(four, second)["containers"] == {"main": {card: [16, 25]}})


async def test_constraints_hold_for_the_nodes_own_choice(four: World) -> None:
    pod = Pod.of({MEMORY: 32, CORES: 50}, annotations={"gaia.io/vgpu-count": "2"})
    await four.run(pod)
    assert sorted(four.given(pod).cards.values()) == [(16, 25), (16, 25)]
    strange = Pod.of({MEMORY: 4, CORES: 5}, annotations={"gaia.io/gpu-model": "H900"})
    four.show(strange)
    assert await four.kubelet.admit(strange)
    four.agent.node.admission.patience = 0.2
    assert not await four.kubelet.start(strange)
    assert "H900" in strange.container("main").message


async def test_an_edit_after_the_start_changes_nothing(four: World) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    await run(four, pod, placement(pod))
    other = placement(pod, containers={"main": {uuid_of(3): [16, 25]}})
    four.kube.change(pod.name, {"metadata": {"annotations": {PLACEMENT: other}}})
    assert await four.kubelet.restart_container(pod)
    assert four.given(pod).cards == {uuid_of(2): (16, 25)}
    four.agent.node.changed()
    await until(lambda: written(four, pod)["containers"]["main"] == {uuid_of(2): [16, 25]})


async def test_a_maximum_is_kept_from_the_start(four: World) -> None:
    most = {"gaia.io/vgpu-max-memory": "8Gi", "gaia.io/vgpu-max-cores": "40", "gaia.io/compute": "elastic"}
    pod = await four.run(Pod.of({MEMORY: 16, CORES: 25}, annotations=most))
    record = four.records()[four.slot(pod)]
    assert (record.maximum.units, record.maximum.cores, record.compute) == (32, 40, "elastic")


async def test_a_write_that_meets_a_change_of_others_is_made_again(four: World) -> None:
    four.kube.refuse(409, "Conflict", "modified", match=lambda asked: asked.method == "PATCH")
    four.kube.refuse(503, "Unavailable", match=lambda asked: asked.method == "PATCH")
    pod = await four.run(Pod.of({MEMORY: 16, CORES: 25}))
    four.ahead += 2.0
    await until(lambda: PLACEMENT in four.kube.pod(pod.name)["metadata"]["annotations"])
    patches = [each for each in four.kube.asked if each.method == "PATCH"]
    assert {(each.body or {})["metadata"]["uid"] for each in patches} == {pod.uid}
    assert all((each.body or {})["metadata"]["resourceVersion"] for each in patches)


async def test_no_room_is_said_and_waited_for(four: World) -> None:
    big = [await four.run(Pod.of({MEMORY: 60, CORES: 90})) for _ in range(4)]
    late = Pod.of({MEMORY: 16, CORES: 8})
    four.show(late)
    assert await four.kubelet.admit(late)
    four.agent.node.admission.patience = 0.2
    assert not await four.kubelet.start(late)
    assert "free" in late.container("main").message
    await four.delete(big[0])
    four.agent.node.admission.patience = 20.0
    await four.kubelet.until_running(late)
    four.check([late, *big[1:]])


async def test_after_two_minutes_without_room_the_pod_is_deleted_with_the_number_that_would_do(
    four: World,
) -> None:
    for _ in range(4):
        await four.run(Pod.of({MEMORY: 60, CORES: 50}))
    late = Pod.of({MEMORY: 16, CORES: 8})
    four.show(late)
    assert await four.kubelet.admit(late)
    admission = four.agent.node.admission
    admission.patience = 0.1
    for ahead in (0.0, 60.0, 119.0):
        four.ahead = ahead
        assert not await four.kubelet.start(late)
        assert "deletionTimestamp" not in four.kube.pod(late.name)["metadata"]
    four.ahead = 121.0
    assert not await four.kubelet.start(late)
    assert "deletionTimestamp" in four.kube.pod(late.name)["metadata"]
    assert not await four.kubelet.start(late)  # it asks until the pod is gone, and is told the same
    assert "took this pod for 120 seconds" in late.container("main").message
    (event,) = four.kube.events
    assert event["regarding"]["uid"] == late.uid
    assert event["reason"] == "NoRoom"
    assert "the largest free slice is 1 GiB and 50 % compute" in event["note"]
    assert event["note"].count("largest free slice") == 1
    deletion = next(each for each in four.kube.asked if each.method == "DELETE")
    assert (deletion.body or {})["preconditions"] == {"uid": late.uid}
