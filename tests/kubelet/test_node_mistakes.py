"""A wrong name, a wrong cluster, a driver that does not answer once: what runs must not pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import tests.kubelet.node_world as node_world
from gaia_plugin.agent import loops
from gaia_plugin.agent.pods.machine import Machine
from gaia_plugin.errors import Fatal, Unusable
from gaia_plugin.kube.pods import CONFIG_HASH
from gaia_plugin.ledger import LedgerDamaged
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.support.kubelet import Pod, until


async def looked(world: World) -> None:
    """Let the agent look for what has ended, several times."""
    await world.agent.node.sight.wait_synced()
    for _ in range(3):
        await world.agent.node.sweep_now()


async def test_a_name_that_no_node_has_ends_the_agent_and_touches_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    before = world.records()
    await world.stop()
    with monkeypatch.context() as patch:
        patch.setattr(node_world, "NODE", "node1.example.com")
        await world.start()
        with pytest.raises(Fatal, match=r"no node 'node1\.example\.com'\. Set GAIA_NODE_NAME"):
            await world.agent.node.reconcile()
        await looked(world)
        assert world.records() == before
        await world.stop()
    await world.start()
    await world.agent.node.admission.reconciled.wait()
    assert await world.kubelet.restart_container(pod)
    world.check([pod])


@pytest.mark.parametrize(
    ("boot", "machine", "sentence"),
    [("boot-1", "machine-2", "is not this machine"), ("boot-2", "machine-1", "reports another boot")],
)
async def test_the_name_of_another_machine_releases_nothing_until_it_is_right(
    world: World, boot: str, machine: str, sentence: str
) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    before = world.records()
    await world.stop()
    world.kube.remove(pod.name)  # of another cluster, where this pod is not
    world.report_node(boot, machine)
    world.machine = Machine("boot-1", "machine-1")
    await world.start()
    node = world.agent.node
    await until(lambda: sentence in node.confirmation.why)
    await looked(world)
    assert world.records() == before
    late = Pod.of({MEMORY: 16, CORES: 25})
    world.show(late)
    assert await world.kubelet.admit(late)
    node.admission.patience = 0.2
    assert not await world.kubelet.start(late)
    assert sentence in late.container("main").message
    node.admission.patience = 20.0
    world.show(pod)
    world.report_node("boot-1", "machine-1")
    world.ahead += 30.0
    await world.kubelet.until_running(late)
    world.check([pod, late])


def once(world: World, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> Callable[[], int]:
    """Let the driver fail once when it is asked what a slot uses; return how often it was asked."""
    real, asked = world.agent.node.reader.use, 0

    def use(claim: object) -> object:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise fault
        return real(claim)  # type: ignore[arg-type]

    monkeypatch.setattr(world.agent.node.reader, "use", use)
    return lambda: asked


@pytest.mark.parametrize("fault", [Unusable("The driver does not answer."), RuntimeError()])
async def test_one_fault_in_a_drain_holds_no_slot_up(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    pods = [await world.run(Pod.of({MEMORY: 8, CORES: 10})) for _ in range(2)]
    asked = once(world, monkeypatch, fault)
    for pod in pods:
        await world.delete(pod)
    await until(lambda: not world.records())
    assert asked() > 1


async def test_a_directory_that_cannot_be_removed_is_cleared_away_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await world.run(Pod.of({MEMORY: 8, CORES: 10}))
    other = await world.run(Pod.of({MEMORY: 8, CORES: 10}))
    directories, state = world.agent.core.directories, world.state

    def full(slot: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(directories, "remove", full)
        await world.delete(pod)
        await until(lambda: set(world.records()) == {world.slot(other)})
        await until(lambda: not world.agent.node.drain_wanted.is_set())
    assert world.slot(pod) in directories.slots()
    (state / "slots" / ".gone-left--main" / "lib").mkdir(parents=True)
    (state / "usage" / "left--main").mkdir()
    await world.agent.node.admission.reconciled.wait()
    await world.agent.node.tidy_once()
    assert [each.name for each in (state / "slots").iterdir()] == [world.slot(other)]
    assert [each.name for each in (state / "usage").iterdir()] == [world.slot(other)]
    world.check([other])


async def test_what_a_killed_removal_left_is_cleared_away_at_the_start(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 8, CORES: 10}))
    (world.state / "slots" / ".gone-left--main" / "lib").mkdir(parents=True)
    (world.state / "usage" / "left--main").mkdir()
    await world.restart()
    for place in ("slots", "usage"):
        assert [each.name for each in (world.state / place).iterdir()] == [world.slot(pod)]


async def test_a_ledger_that_is_damaged_meanwhile_ends_the_agent() -> None:
    async def damaged() -> None:
        raise LedgerDamaged("The ledger is damaged.")

    with pytest.raises(LedgerDamaged):
        await asyncio.wait_for(loops.repeat("any", 0.0, damaged), 5.0)


async def test_a_deletion_that_is_refused_is_said_once_and_tried_ever_less_often(world: World) -> None:
    await world.run(Pod.of({MEMORY: 30, CORES: 50}))
    node = world.agent.node
    late = Pod.of({MEMORY: 34})  # with 54 % compute that nobody asked for
    world.show(late)
    assert await world.kubelet.admit(late)
    world.kube.refuse(403, "Forbidden", times=1000, match=lambda asked: asked.method == "DELETE")
    node.admission.patience = 0.1
    assert not await world.kubelet.start(late)
    assert "(compute that comes with the memory)" in late.container("main").message
    tries = []
    for ahead in range(121, 152):
        world.ahead = float(ahead)
        assert not await world.kubelet.start(late)
        tries.append(len([asked for asked in world.kube.asked if asked.method == "DELETE"]))
    assert tries[0] == 1
    assert tries[-1] <= 5
    (event,) = world.kube.events
    assert event["reason"] == "NotDeleted"
    assert "It cannot be deleted: " in event["note"]
    assert event["note"].count("largest free slice") == 1


async def test_a_static_pod_is_told_that_it_is_not_supported(world: World) -> None:
    pod = Pod.of({MEMORY: 8, CORES: 10})
    shown = pod.as_api("node1")
    shown["metadata"]["annotations"][CONFIG_HASH] = pod.uid
    shown["metadata"]["uid"] = "uid-of-the-mirror"
    world.kube.put(shown)
    await until(lambda: world.agent.node.sight.mirror(pod.uid) is not None)
    assert await world.kubelet.admit(pod)
    assert not await world.kubelet.start(pod)
    assert "is a static pod, and static pods are not given slices" in pod.container("main").message
