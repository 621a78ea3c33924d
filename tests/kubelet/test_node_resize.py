"""A pod's slot changes its size while it runs, and the node's object says so at each step."""

from __future__ import annotations

import asyncio

import pytest

from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.shares import Share
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.kubelet.resizing import agreed, booked, growing, is_status, promised, resize, seen, told
from tests.support.kubelet import Pod, until


async def test_the_object_says_what_the_node_has(world: World) -> None:
    pod = await world.run(growing(16, 25))
    await agreed(world, pod)
    node = seen(world)
    assert node.status.ready
    assert node.status.heartbeat
    (card,) = node.status.cards
    assert (card.uuid, card.model, card.healthy) == (uuid_of(0), "Played", True)
    assert (card.capacity.share, card.free.share) == (Share(64, 100), Share(48, 75))
    (slot,) = node.status.slots
    assert (slot.pod, slot.container, slot.state, slot.compute) == (
        f"default/{pod.name}",
        "main",
        "Applied",
        "hard",
    )
    assert slot.maximum.share == Share(64, 100)
    assert node.status.summary.memory == "12 GiB of 16 GiB"
    assert node.status.summary.largest == "12 GiB and 75 % compute"
    await world.delete(pod)
    await agreed(world)


async def test_a_slot_is_in_the_object_before_it_is_in_force(world: World) -> None:
    pod = growing(16, 25)
    world.show(pod)
    held = world.kube.hold_back(match=is_status, patient=True)
    starting = asyncio.create_task(world.kubelet.run(pod))
    await until(lambda: held.waiting)
    record = world.records()[world.slot(pod)]
    assert (record.reserved, record.held) == (True, Share(16, 25))
    assert not list(world.cdi.iterdir())
    held.deliver()
    await starting
    await agreed(world, pod)


async def test_a_grow_is_in_the_object_before_it_is_in_force(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    held = world.kube.hold_back(match=is_status, patient=True)
    growing_ = asyncio.create_task(resize(world, pod, 32))
    await until(lambda: held.waiting)
    assert booked(world, pod) == (16, 32)
    assert world.given(pod).cards[uuid_of(0)][0] == 16
    held.deliver()
    assert (await growing_).state == "applied"
    assert told(world, pod) is not None
    assert told(world, pod)[1] == 32  # type: ignore[index]
    await agreed(world, pod)
    assert booked(world, pod) == (32, 32)


async def test_a_shrink_is_in_force_at_once_and_told_soon(world: World) -> None:
    pod = await world.run(growing(32))
    assert (await resize(world, pod, 8)).state == "applied"
    assert booked(world, pod) == (8, 8)
    await agreed(world, pod)
    assert told(world, pod) == (8, 8, "Applied")


async def test_a_shrink_below_use_is_told_as_draining(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = await world.run(growing(32))
    node = world.agent.node
    monkeypatch.setattr(node.core.directories.members, "contains", lambda _, pid: pid == 4711)
    world.cards.held[uuid_of(0)] = {4711: 24 << 28}
    assert (await resize(world, pod, 8)).state == "draining"
    await until(lambda: told(world, pod) == (8, 24, "Draining"))
    world.cards.held[uuid_of(0)] = {4711: 2 << 28}
    await agreed(world, pod)
    await until(lambda: told(world, pod) == (8, 8, "Applied"))


async def test_one_respect_may_grow_while_another_shrinks(world: World) -> None:
    pod = await world.run(growing(32, 25))
    wish = models.Resize(memory=8 << 28, cores=50)
    assert (await world.agent.node.resize(world.slot(pod), wish, None)).state == "applied"
    await agreed(world, pod)
    assert world.records()[world.slot(pod)].held == Share(8, 50)


async def test_what_is_reserved_is_not_grown_into(world: World) -> None:
    pod = await world.run(growing(32))
    await agreed(world, pod)
    world.kube.reserve(promised("other", 16, 10))
    with pytest.raises(Refusal) as refused:
        await resize(world, pod, 56)
    assert refused.value.code is Code.CARD_FULL
    assert refused.value.best_memory == 48 << 28
    assert "4 GiB are free" in refused.value.sentence
    await until(lambda: booked(world, pod) == (32, 32))
    assert (await resize(world, pod, 48)).state == "applied"
    await agreed(world, pod)
    assert seen(world).status.cards[0].free.memory == 0


async def test_a_reservation_that_is_dropped_is_room_at_once(world: World) -> None:
    pod = await world.run(growing(32))
    await agreed(world, pod)
    world.kube.reserve(promised("other", 32, 10))
    with pytest.raises(Refusal):
        await resize(world, pod, 33)
    world.kube.reserve()
    assert (await resize(world, pod, 64)).state == "applied"
    await agreed(world, pod)


async def test_a_pod_gets_what_is_reserved_for_it(world: World) -> None:
    first, second = growing(32), Pod.of({MEMORY: 32, CORES: 10})
    await world.run(first)
    await agreed(world, first)
    world.kube.reserve(promised(second.uid, 32, 10))
    with pytest.raises(Refusal):
        await resize(world, first, 40)
    await world.run(second)
    await agreed(world, first, second)
    assert told(world, second) == (32, 32, "Applied")


async def test_a_pod_without_a_reservation_does_not_get_anothers(world: World) -> None:
    world.cards.sizes = [16384] * 2
    await world.agent.sync()
    await until(lambda: world.kube.gpunode() and len(seen(world).status.cards) == 2)
    world.kube.reserve(promised("other", 64, 100, card=0))
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 10}))
    assert set(world.given(pod).cards) == {uuid_of(1)}


async def test_two_grows_at_once_are_two_grows(world: World) -> None:
    first, second = growing(8, 10), growing(8, 10)
    await world.run(first)
    await world.run(second)
    await asyncio.gather(resize(world, first, 24), resize(world, second, 40))
    await agreed(world, first, second)
    assert (booked(world, first), booked(world, second)) == ((24, 24), (40, 40))


async def test_grows_of_one_slot_wait_for_each_other(world: World) -> None:
    pod = await world.run(growing(8))
    await asyncio.gather(*(resize(world, pod, amount) for amount in (16, 24, 32)))
    await agreed(world, pod)
    assert booked(world, pod) in ((16, 16), (24, 24), (32, 32))
    with pytest.raises(Refusal) as stale:
        await resize(world, pod, 40, generation=1)
    assert stale.value.code is Code.STALE


async def test_a_shrink_makes_a_grow_under_way_void(world: World) -> None:
    pod = await world.run(growing(32))
    await agreed(world, pod)
    held = world.kube.hold_back(match=is_status, patient=True)
    larger = asyncio.create_task(resize(world, pod, 64))
    await until(lambda: held.waiting)
    assert (await resize(world, pod, 8)).slot.granted.memory == 8 << 28
    held.deliver()
    with pytest.raises(Refusal) as stale:
        await larger
    assert stale.value.code is Code.STALE
    await agreed(world, pod)
    await until(lambda: booked(world, pod) == (8, 8))


async def test_a_request_that_is_given_up_leaves_nothing_half(world: World) -> None:
    pod = await world.run(growing(8))
    for milliseconds in range(20):
        call = asyncio.create_task(resize(world, pod, 16 + milliseconds % 2))
        await asyncio.sleep(milliseconds / 1000)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await until(lambda: (has := booked(world, pod)) is not None and has[0] == has[1])
    await agreed(world, pod)


async def test_the_pod_ends_while_it_grows(world: World) -> None:
    pod = await world.run(growing(8))
    await agreed(world, pod)
    held = world.kube.hold_back(match=is_status, patient=True)
    larger = asyncio.create_task(resize(world, pod, 64))
    await until(lambda: held.waiting)
    await world.delete(pod)
    await until(lambda: not world.records())
    held.deliver()
    with pytest.raises(Refusal):
        await larger
    await agreed(world)
