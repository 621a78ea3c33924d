"""The API server is away, slow, forgetful or contradicts: nothing is in force that it knows nothing of."""

from __future__ import annotations

import asyncio

import pytest

from gaia_plugin.errors import Code, Refusal
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.kubelet.resizing import agreed, booked, growing, is_node, is_status, promised, resize, seen, told
from tests.support.kubeapi.custom import GPUNODES
from tests.support.kubelet import Pod, until


async def refused(world: World, pod: Pod, units: int) -> Refusal:
    """The refusal of a grow."""
    with pytest.raises(Refusal) as told_:
        await resize(world, pod, units)
    return told_.value


async def test_with_the_api_server_away_a_slot_shrinks_and_does_not_grow(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.away()
    refusal = await refused(world, pod, 32)
    assert refusal.code is Code.UNAVAILABLE
    assert "Nothing starts or grows on this node now" in refusal.sentence
    assert "gave no answer" in refusal.sentence
    await until(lambda: booked(world, pod) == (16, 16))
    assert (await resize(world, pod, 4)).state == "applied"
    assert booked(world, pod) == (4, 4)
    world.kube.back()
    await agreed(world, pod)
    assert (await resize(world, pod, 32)).state == "applied"
    await agreed(world, pod)


async def test_a_lost_answer_puts_nothing_in_force(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.lose_answers(match=is_status)
    assert (await refused(world, pod, 32)).code is Code.UNAVAILABLE
    assert world.given(pod).cards[uuid_of(0)][0] == 16
    await until(lambda: booked(world, pod) == (16, 16))
    await agreed(world, pod)


async def test_a_status_that_arrives_late_counts_for_nothing(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    late = world.kube.hold_back(match=is_status)
    assert (await refused(world, pod, 32)).code is Code.UNAVAILABLE
    await agreed(world, pod)
    world.kube.reserve(promised("other", 48, 10))
    assert late.deliver() == [409]
    await until(lambda: booked(world, pod) == (16, 16))
    await agreed(world, pod)
    assert told(world, pod) == (16, 16, "Applied")
    assert len(seen(world).spec.reservations) == 1


async def test_a_start_whose_answer_is_lost_is_tried_again(world: World) -> None:
    world.kube.lose_answers(match=is_status, times=2)
    pod = await world.run(growing(16))
    await agreed(world, pod)
    await world.delete(pod)
    await world.empty()
    await agreed(world)


async def test_conflicts_without_end_are_an_answer_in_time(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    writer = world.agent.node.writer
    assert writer is not None
    writer.patience = 0.3
    world.kube.refuse(409, "Conflict", "the object has been modified", times=100_000, match=is_status)
    refusal = await refused(world, pod, 32)
    assert refusal.code is Code.UNAVAILABLE
    assert "has been modified" in refusal.sentence
    assert (await resize(world, pod, 8)).state == "applied"
    world.kube.heal()
    writer.patience = 8.0
    assert (await resize(world, pod, 32)).state == "applied"
    await agreed(world, pod)


async def test_a_few_conflicts_are_not_noticed(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.refuse(409, "Conflict", "the object has been modified", times=5, match=is_status)
    assert (await resize(world, pod, 32)).state == "applied"
    await agreed(world, pod)


async def test_without_the_definition_nothing_starts_or_grows_and_a_sentence_says_what_to_apply(
    world: World,
) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.uninstall_crds()
    refusal = await refused(world, pod, 32)
    assert refusal.code is Code.UNAVAILABLE
    assert "deploy/crd.yaml" in refusal.sentence
    assert (await resize(world, pod, 4)).state == "applied"
    other = Pod.of({MEMORY: 4, CORES: 10})
    world.show(other)
    assert await world.kubelet.admit(other)
    assert not await world.kubelet.start(other)
    assert "deploy/crd.yaml" in other.container("main").message
    assert world.kube.pod(other.name), "a pod is not deleted for it"
    world.kube.install_crds()
    await world.kubelet.until_running(other)
    await agreed(world, pod, other)


async def test_an_object_that_was_deleted_is_made_again(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    first = seen(world).metadata.uid
    world.kube.remove("node1", "", GPUNODES)
    assert (await resize(world, pod, 32)).state == "applied"
    await agreed(world, pod)
    assert seen(world).metadata.uid != first


async def test_a_status_that_somebody_changed_is_put_right(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    item = world.kube.gpunode()
    assert item is not None
    world.kube.put(
        {**item, "status": {"ready": True, "heartbeat": "", "agentVersion": ""}}, "gaia.io/v1alpha1/gpunodes"
    )
    world.ahead += 31.0
    assert world.agent.node.writer is not None
    world.agent.node.writer.touch()
    await agreed(world, pod)


async def test_an_agent_that_ends_says_so(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    await world.stop()
    assert seen(world).status.ready is False
    assert told(world, pod) == (16, 16, "Applied")
    await world.start()
    await until(lambda: seen(world).status.ready)
    await agreed(world, pod)


async def test_an_agent_that_ends_while_the_api_server_is_away_ends(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.away()
    await world.stop()
    world.kube.back()
    assert seen(world).status.ready is True  # its heartbeat is what tells
    await world.start()
    await agreed(world, pod)


async def test_a_pod_is_not_deleted_because_the_object_cannot_be_written(world: World) -> None:
    writer = world.agent.node.writer
    assert writer is not None
    writer.patience = 0.1
    world.kube.refuse(403, "Forbidden", "not allowed", times=100_000, match=is_node)
    pod = growing(16)
    world.show(pod)
    assert await world.kubelet.admit(pod)
    for _ in range(3):
        assert not await world.kubelet.start(pod)
        assert "not allowed" in pod.container("main").message
        world.ahead += 200.0
    assert world.kube.pod(pod.name)
    assert world.records() == {}
    world.kube.heal()
    await world.kubelet.until_running(pod)
    await agreed(world, pod)


async def test_a_slow_api_server_makes_a_grow_slow_and_nothing_else(world: World) -> None:
    first, second = await world.run(growing(8, 10)), await world.run(growing(8, 10))
    await agreed(world, first, second)
    held = world.kube.hold_back(match=is_status, patient=True)
    larger = asyncio.create_task(resize(world, first, 16))
    await until(lambda: held.waiting)
    assert (await resize(world, second, 4)).state == "applied"
    assert (await world.agent.node.slot(world.slot(first))).granted.memory == 8 << 28
    held.deliver()
    assert (await larger).state == "applied"
    await agreed(world, first, second)
