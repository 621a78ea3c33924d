"""API server away, disk full, a card lost under running slots, a kubelet that cannot be read."""

from __future__ import annotations

import asyncio
import errno

import pytest

from gaia_plugin.errors import Refusal
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.support.kubelet import Pod, until


def message(pod: Pod) -> str:
    return pod.container("main").message


async def swept(world: World, rounds: int = 3) -> None:
    """Let the agent look around a few times."""
    for _ in range(rounds):
        await world.agent.node.sweep_now()


async def test_without_an_api_server_running_pods_go_on_and_new_ones_wait(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    before = world.records()
    new = Pod.of({MEMORY: 16, CORES: 25})
    world.kube.away()
    assert await world.kubelet.restart_container(pod)
    assert await world.kubelet.admit(new)
    world.agent.node.admission.patience = 0.3
    assert not await world.kubelet.start(new)
    assert "The API server cannot be reached by the node's agent: " in message(new)
    await world.restart()
    world.agent.node.admission.patience = 0.3
    assert await world.kubelet.restart_container(pod)
    assert not await world.kubelet.start(new)
    assert "does not reach the API server" in message(new)
    await swept(world)
    assert world.records() == before
    world.kube.back()
    world.show(new)
    world.agent.node.admission.patience = 20.0
    await world.kubelet.until_running(new)
    world.check([pod, new])


async def test_a_pod_that_ends_while_the_api_server_is_away_is_released_when_it_is_back(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    world.kube.away()
    await world.kubelet.delete(pod)
    await world.restart()
    await swept(world)
    assert set(world.records()) == {world.slot(pod)}
    world.kube.remove(pod.name)
    world.kube.back()
    await world.empty()


async def test_what_a_watch_does_not_show_is_asked_for_before_it_is_released(world: World) -> None:
    """A list from a cache that is behind lacks a pod that runs."""
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    await world.stop()
    lists = 0

    def hide(asked: object) -> None:
        nonlocal lists
        lists += 1
        if lists == 1:
            world.kube.remove(pod.name)
        elif lists == 2:
            world.show(pod)

    world.kube.before_page(hide)
    await world.start()
    await until(lambda: lists >= 2)
    await swept(world)
    world.kube.before_page(None)
    assert set(world.records()) == {world.slot(pod)}
    assert await world.kubelet.restart_container(pod)
    world.check([pod])


async def test_a_terminating_pod_holds_its_cards_until_its_containers_ended(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 60, CORES: 90}))
    world.kubelet.terminate(pod)
    world.kube.change(pod.name, {"metadata": {"deletionTimestamp": "2026-11-29T12:00:00Z"}})
    await until(lambda: (seen := world.agent.node.sight.pod(pod.uid)) is not None and seen.terminating)
    await swept(world)
    assert world.records()[world.slot(pod)].target.units == 60
    world.kubelet.finish(pod)
    world.report(pod)
    await until(lambda: not world.records())


async def test_a_pod_that_has_ended_gives_back_although_it_is_still_there(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 60, CORES: 90}))
    world.kubelet.finish(pod)
    world.report(pod)
    await until(lambda: not world.records())
    second = await world.run(Pod.of({MEMORY: 60, CORES: 90}))
    world.check([second])


async def test_a_full_disk_refuses_with_a_sentence_and_is_over_when_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    pod = Pod.of({MEMORY: 16, CORES: 25})
    world.show(pod)
    assert await world.kubelet.admit(pod)
    with monkeypatch.context() as patch:
        patch.setattr(world.agent.core.directories, "create", full)
        assert not await world.kubelet.start(pod)
        assert "No space left on device" in message(pod)
        assert world.records() == {}
    with monkeypatch.context() as patch:
        patch.setattr(world.agent.core.specs, "write", full)
        assert not await world.kubelet.start(pod)
        assert world.records() == {}
        assert world.agent.core.directories.slots() == []
    await world.kubelet.until_running(pod)
    world.check([pod])


async def test_a_lost_card_keeps_its_slots_and_takes_free_devices_out_of_use(world: World) -> None:
    world.cards.sizes = [16384] * 2
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 128)
    pods = [await world.run(Pod.of({MEMORY: 20, CORES: 30})) for _ in range(2)]
    (lost,) = world.given(pods[0]).cards
    world.cards.sick = {int(lost[-12:])}
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64)
    assert world.kubelet.capacity(MEMORY) == 128
    assert world.kubelet.allocatable(CORES) == 100
    for pod in pods:
        for ids in world.kubelet.ids(pod).values():
            listed = world.kubelet.listed(MEMORY) | world.kubelet.listed(CORES)
            assert all(listed[each] for each in ids)
        assert await world.kubelet.restart_container(pod)
        world.check([pod])
    assert [view.trouble for view in await world.agent.node.cards() if not view.healthy] == [
        "The card is out of use: it was lost."
    ]
    world.cards.sick = set()
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 128)
    assert not any(view.trouble for view in await world.agent.node.cards())


async def test_no_new_pod_is_put_on_a_sick_card(world: World) -> None:
    world.cards.sizes = [16384] * 2
    world.cards.sick = {0}
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64)
    pods = [await world.run(Pod.of({MEMORY: 20, CORES: 30})) for _ in range(3)]
    assert {card for pod in pods for card in world.given(pod).cards} == {uuid_of(1)}


async def test_a_record_of_the_kubelet_that_cannot_be_read_is_waited_for(world: World) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    world.show(pod)
    assert await world.kubelet.admit(pod)
    record = world.kubelet.plugins / "kubelet_internal_checkpoint"
    sound = record.read_text()
    record.write_text("{")
    assert not await world.kubelet.start(pod)
    assert "is not understood" in message(pod)
    record.write_text(sound)
    assert await world.kubelet.start(pod)
    world.check([pod])


async def test_older_kubelets_list_devices_plainly(world: World) -> None:
    world.kubelet.devices.by_numa = False
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    world.check([pod])


async def test_operators_are_told_that_slots_come_from_pods(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    with pytest.raises(Refusal, match="create or delete the pod"):
        await world.agent.node.release(world.slot(pod))
    view = await world.agent.node.slot(world.slot(pod))
    assert view.granted.cores == 25


async def test_a_slot_without_a_process_is_never_unclaimed(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    assert world.agent.core.unclaimed() == []
    assert world.records()[world.slot(pod)].process is None


async def test_a_cancelled_wait_for_the_api_server_leaves_nothing(world: World) -> None:
    pod = Pod.of({MEMORY: 16, CORES: 25})
    assert await world.kubelet.admit(pod)
    call = asyncio.create_task(world.agent.node.prestart(MEMORY, world.kubelet.ids(pod)[MEMORY]))
    await asyncio.sleep(0.05)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert world.records() == {}
    world.show(pod)
    await world.kubelet.until_running(pod)
    world.check([pod])
