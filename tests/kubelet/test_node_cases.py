"""Cases that users of other systems met, by their numbers in CASES."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from gaia_plugin.agent.lock import StateLock, Taken
from gaia_plugin.agent.pods.advertised import Advertiser
from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2
from gaia_plugin.errors import Unusable
from gaia_plugin.ledger import CardCapacity
from tests.kubelet.node_world import CORES, MEMORY, PLACEMENT, Agent, World, gather, uuid_of
from tests.support.kubelet import Pod, until

MIB_PER_UNIT = 256


async def two_pods(world: World, dice: random.Random) -> None:
    a, b = Pod.of({CORES: 20, MEMORY: 4}), Pod.of({CORES: 20, MEMORY: 12})
    for pod in (a, b):
        world.show(pod)
    if dice.random() < 0.2:
        world.ahead += 360.0
    orders = [[MEMORY, CORES], [CORES, MEMORY]]
    first, second = dice.sample([a, b], 2) if dice.random() < 0.5 else (b, a)
    for pod in (first, second):
        assert await world.kubelet.admit(pod, order=dice.choice(orders)), pod.message
        await asyncio.sleep(dice.choice([0, 0, 0.002]))

    async def start(pod: Pod, delay: float) -> None:
        await asyncio.sleep(delay)
        assert await world.kubelet.start(pod, order=dice.choice(orders)), pod.container("main").message

    await gather(start(a, dice.choice([0, 0.001, 0.003])), start(b, dice.choice([0, 0.001, 0.003])))
    assert world.given(a).cards == {uuid_of(0): (4, 20)}
    assert world.given(b).cards == {uuid_of(0): (12, 20)}
    await gather(world.delete(a), world.delete(b))


async def c01(world: World, times: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(times):
        await two_pods(world, dice)
    await world.empty()


async def test_c01_two_pods_of_the_same_cores_and_other_memory(world: World) -> None:
    await c01(world, 200, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 7))
async def test_c01_with_other_chances(world: World, seed: int) -> None:
    await c01(world, 200, seed)


def test_c05_too_many_device_ids() -> None:
    """Eight cards of 143771 MiB in units of 256 MiB; the kubelet takes no message above 4 MiB."""
    units = 143771 // MIB_PER_UNIT
    cards = [CardCapacity(uuid_of(index), index, "sim", units) for index in range(8)]
    memory = Advertiser(MEMORY, CORES).lists(cards, [], []).memory
    assert len(memory) == 4488
    assert len({device.id for device in memory}) == 4488
    message = api_pb2.ListAndWatchResponse(
        devices=[api_pb2.Device(ID=device.id, health="Healthy") for device in memory]
    )
    assert message.ByteSize() < 1 << 20
    advertise.check_size(4488)
    with pytest.raises(Unusable, match=r"takes no message above 4 MiB. A unit of \d+ MiB fits"):
        advertise.check_size(8 * 143771, 1 << 20)


async def test_c06_kubelet_and_plugin_restarts(world: World) -> None:
    dice = random.Random(6)
    world.cards.sizes = [16384] * 2
    await world.agent.sync()
    pods = [await world.run(Pod.of({MEMORY: 20, CORES: 30})) for _ in range(3)]
    before = world.records(), [world.given(pod) for pod in pods]
    rows = {(row.name, row.uid) for row in world.agent.core.allocations.all()}
    message = {each: world.kubelet.last_message(each) for each in (MEMORY, CORES)}
    for _ in range(50):
        if dice.random() < 0.5:
            await world.kubelet.restart()
            if dice.random() < 0.3:
                # a registration under way arrives at the second and is made again: no calls meanwhile
                await world.kubelet.restart()
                await world.registered()
            else:
                await world.registered()
                assert await world.kubelet.restart_container(dice.choice(pods))
        else:
            await world.restart()
        assert {each: world.kubelet.last_message(each) for each in (MEMORY, CORES)} == message
        assert (world.records(), [world.given(pod) for pod in pods]) == before
        assert {(row.name, row.uid) for row in world.agent.core.allocations.all()} == rows
    world.check(pods)


async def c20(world: World, times: int) -> None:
    """All devices of the node go to one pod after another, and each is put on a card of its own."""
    dice = random.Random(20)
    seen: set[str] = set()
    world.cards.sizes = [16384] * 4
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 256)
    world.kubelet.runtime.stale = True
    ids = None
    for _ in range(times):
        pod, card = Pod.of({MEMORY: 256, CORES: 400}), uuid_of(dice.randrange(4))
        asked = {"limits": {MEMORY: "64", CORES: "100"}}
        placement = {"uid": pod.uid, "node": "node1", "containers": {"main": {card: [64, 100]}}}
        shown = pod.as_api()
        shown["spec"]["containers"] = [{"name": "main", "resources": asked}]
        shown["metadata"]["annotations"][PLACEMENT] = json.dumps(placement)
        world.kube.put(shown)
        await world.kubelet.run(pod)
        given = world.given(pod)
        assert given.slot == world.slot(pod)
        assert given.slot not in seen
        assert given.cards == {card: (64, 100)}
        assert ids in (None, world.kubelet.ids(pod))
        ids = world.kubelet.ids(pod)
        seen.add(given.slot)
        await world.delete(pod)
        await until(lambda: not world.records())
        await world.agent.node.advertise_now()
        for resource, count in ((MEMORY, 256), (CORES, 400)):
            whole = (count, count)
            await until(
                lambda r=resource, w=whole: (world.kubelet.allocatable(r), world.kubelet.capacity(r)) == w
            )


async def test_c20_the_same_ids_for_the_next_pod(world: World) -> None:
    await c20(world, 200)


async def c22(world: World, times: int, seed: int = 22) -> None:
    dice = random.Random(seed)
    world.cards.sizes = [16384] * 4
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 256)
    for _ in range(times):
        first = Pod.of({MEMORY: 8, CORES: 10}, name="notebook")
        late = dice.random() < 0.5
        if not late:
            world.show(first)  # else its PreStart waits for the API server
        assert await world.kubelet.admit(first)
        starting = asyncio.create_task(world.kubelet.start(first))
        await asyncio.sleep(dice.choice([0, 0.002, 0.02]))
        if late:
            await world.kubelet.force_delete(first)
        else:
            await world.force_delete(first)
        second = first.again({MEMORY: 12, CORES: 15})
        world.show(second)
        same = dice.random() < 0.5 and second.again({MEMORY: 8, CORES: 10})
        if same:
            world.kube.remove(second.name)
            second = same
            world.show(second)
            assert await world.kubelet.admit(second, same_ids_as=first)
        else:
            assert await world.kubelet.admit(second)
        await world.kubelet.until_running(second)
        if late:
            starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        given = world.given(second)
        assert given.slot == world.slot(second)
        limits = second.container("main").limits
        assert list(given.cards.values()) == [(limits[MEMORY], limits[CORES])]
        if first.container("main").running:
            assert first.container("main").edits is not None
            slot = Path(first.container("main").edits.mounts["/run/gaia"].source).name  # type: ignore[union-attr]
            assert slot == world.slot(first)
        world.kubelet.kill(first)
        await world.delete(second)
    await world.empty()


async def test_c22_a_name_that_comes_back(world: World) -> None:
    await c22(world, 200)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
async def test_c22_with_other_chances(world: World, seed: int) -> None:
    await c22(world, 200, seed)


async def test_c24_two_agents(world: World) -> None:
    """The second serves nothing and reads nothing until the first is gone."""
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    lock = StateLock.take(world.state)
    before = world.records()
    with pytest.raises(Taken, match="serves nothing"):
        StateLock.take(world.state)
    lock.release()
    await world.stop()
    lock = StateLock.take(world.state)
    world.agent_ = await Agent.start(world)
    assert world.records() == before
    await world.registered()
    world.check([pod])
    lock.release()


@pytest.mark.long
async def test_ten_thousand_concurrent_pods_and_no_wrong_identity(world: World) -> None:
    """Sixty at a time on eight cards: few sizes, restarts, deletions by force, names that come back."""
    dice = random.Random(10_000)
    world.cards.sizes = [16384] * 8
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 512)
    sizes, places, each = [(2, 4), (4, 4), (4, 8)], 60, 167
    done = 0

    async def place() -> None:
        nonlocal done
        name = ""
        for _ in range(each):
            units, cores = dice.choice(sizes)
            pod = Pod.of({MEMORY: units, CORES: cores}, name=name)
            world.show(pod)
            assert await world.kubelet.admit(pod), pod.message
            await world.kubelet.until_running(pod, 60)
            world.report(pod)
            for _ in range(dice.randrange(3)):
                assert await world.kubelet.restart_container(pod), pod.container("main").message
            given = world.given(pod)
            assert given.slot == world.slot(pod)
            assert list(given.cards.values()) == [(units, cores)]
            by_force = dice.random() < 0.3
            await (world.force_delete(pod) if by_force else world.delete(pod))
            world.kubelet.kill(pod)
            name = pod.name if dice.random() < 0.5 else ""
            done += 1
            if done % 500 == 0:
                world.kube.compact()

    await gather(*(place() for _ in range(places)))
    assert done == places * each >= 10_000
    await world.empty()
