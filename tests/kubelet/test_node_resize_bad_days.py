"""The API server is away, slow, forgetful or contradicts: nothing is in force that it knows nothing of."""

from __future__ import annotations

import asyncio

import pytest

from gaia_plugin.errors import Code, Refusal
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.kubelet.resizing import (
    agreed,
    booked,
    growing,
    is_node,
    is_pods,
    is_status,
    promised,
    resize,
    seen,
    told,
)
from tests.support.kubeapi.custom import GPUNODES
from tests.support.kubeapi.server import NODES
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


async def test_nothing_is_called_true_before_the_server_has_said_so(world: World) -> None:
    """What the ledger has is what was written last, and the definition is gone all the same."""
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.uninstall_crds()
    await refused(world, pod, 32)
    writer = world.agent.node.writer
    assert writer is not None
    before = sum(map(is_node, world.kube.asked))
    await until(lambda: sum(map(is_node, world.kube.asked)) > before)
    assert "deploy/crd.yaml" in writer.doubt
    explained = await world.agent.node.explain(f"default/{pod.name}")
    assert explained.sentence == writer.doubt
    world.kube.install_crds()
    await until(lambda: not writer.doubt)
    await agreed(world, pod)
    assert (await world.agent.node.explain(f"default/{pod.name}")).sentence == ""


async def test_what_an_agent_may_not_do_is_told_with_what_to_apply(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.refuse(403, "Forbidden", "cannot update gpunodes/status", times=100_000, match=is_status)
    assert (await refused(world, pod, 32)).sentence.endswith(
        "cannot update gpunodes/status. What an agent has to be allowed is in deploy/agent.yaml."
    )
    world.kube.heal()
    await agreed(world, pod)


async def test_a_pod_that_is_not_seen_yet_is_not_called_gone(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.refuse(403, "Forbidden", "cannot list pods", times=100_000, match=is_pods)
    await world.restart()
    told_ = await world.agent.node.explain(f"default/{pod.name}")
    assert told_.phase == "Unknown"
    assert "has not heard yet" in told_.sentence
    world.kube.heal()
    await until(lambda: world.agent.node.sight.synced)
    assert (await world.agent.node.explain(f"default/{pod.name}")).phase == "Running"


async def test_a_reservation_is_told_by_the_name_that_the_extender_wrote(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.reserve(promised("other", 40, 10))
    with pytest.raises(Refusal):
        await resize(world, pod, 64)
    (container,) = (await world.agent.node.explain(f"default/{pod.name}")).containers
    assert [holder.name for holder in container.cards[0].holders] == ["default/x:main"]


async def test_a_node_that_the_cluster_has_no_more_is_said_and_not_asked_for_all_the_time(
    world: World,
) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    world.kube.remove("node1", "", NODES)
    world.kube.remove("node1", "", GPUNODES)
    assert "no Node node1 any more" in (await refused(world, pod, 32)).sentence
    assert (await resize(world, pod, 4)).state == "applied"
    world.kube.node()
    await until(lambda: world.kube.gpunode() is not None, 30)
    await agreed(world, pod)
    assert (await resize(world, pod, 32)).state == "applied"
