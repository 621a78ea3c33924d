"""After a crash, a lost database, lost directories, a reboot: running containers keep what they have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gaia_plugin.agent.pods.identity import Owner
from tests.kubelet.node_world import CORES, MEMORY, PLACEMENT, World, uuid_of
from tests.support.kubelet import Pod, until


@pytest.fixture
async def pods(world: World) -> list[Pod]:
    """Three running pods on two cards."""
    world.cards.sizes = [16384] * 2
    await world.agent.sync()
    await until(lambda: world.kubelet.allocatable(MEMORY) == 128)
    running = [
        await world.run(Pod.of({MEMORY: units, CORES: cores}))
        for units, cores in ((48, 60), (16, 40), (32, 50))
    ]
    for pod in running:
        await until(lambda pod=pod: PLACEMENT in world.kube.pod(pod.name)["metadata"]["annotations"])
    return running


def lose(world: World, *what: str) -> None:
    for name in what:
        for path in world.state.glob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


LEDGER, ALLOCATIONS = "ledger.sqlite*", "allocations.sqlite*"


def held(world: World) -> dict[str, dict[str, tuple[int, int]]]:
    return {
        slot: {part.card: (part.held.units, part.held.cores) for part in record.slices}
        for slot, record in world.records().items()
    }


async def reconciled(world: World) -> None:
    await until(world.agent.node.admission.reconciled.is_set)


@pytest.mark.parametrize(
    "lost",
    [
        (),
        (LEDGER,),
        (ALLOCATIONS,),
        (LEDGER, ALLOCATIONS),
        ("slots",),
        ("slots", ALLOCATIONS),
        (LEDGER, "slots"),
        (LEDGER, ALLOCATIONS, "slots", "usage", "lib"),
    ],
    ids=lambda lost: "+".join(each.split(".")[0] for each in lost) or "nothing",
)
async def test_whatever_is_lost_running_containers_keep_their_cards(
    world: World, pods: list[Pod], lost: tuple[str, ...]
) -> None:
    before, given = held(world), [world.given(pod) for pod in pods]
    rows = {(row.name, row.uid, row.container) for row in world.agent.core.allocations.all()}
    await world.stop()
    lose(world, *lost)
    await world.start()
    await reconciled(world)
    assert held(world) == before
    assert {(row.name, row.uid, row.container) for row in world.agent.core.allocations.all()} == rows
    labels = {record.label for record in world.records().values()}
    assert labels == {f"default/{pod.name}" for pod in pods}
    for pod in pods:
        assert await world.kubelet.restart_container(pod)
    assert [world.given(pod) for pod in pods] == given
    # nothing was left free that is in use
    new = Pod.of({MEMORY: 32, CORES: 10})
    world.show(new)
    assert await world.kubelet.admit(new)
    world.agent.node.admission.patience = 0.2
    assert await world.kubelet.start(new)
    world.check([*pods, new])


async def test_a_lost_ledger_is_told_to_people(world: World, pods: list[Pod]) -> None:
    await world.stop()
    lose(world, LEDGER)
    await world.start()
    views = await world.agent.node.slots()
    assert len(views) == 3
    assert all("The ledger was lost" in view.message and view.note for view in views)


async def test_a_damaged_ledger_is_moved_aside_and_made_again(world: World, pods: list[Pod]) -> None:
    before = held(world)
    await world.stop()
    path = world.state / "ledger.sqlite"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xa5" * (len(whole) - 100))
    for companion in world.state.glob("ledger.sqlite-*"):
        companion.unlink()
    await world.start()
    await reconciled(world)
    assert held(world) == before
    assert list(world.state.glob("ledger.sqlite.damaged-*"))


async def test_a_lost_ledger_waits_for_the_api_server_before_it_gives_anything(
    world: World, pods: list[Pod]
) -> None:
    """Ledger and directories are gone and the API server is away: nobody knows who has which card."""
    await world.stop()
    lose(world, LEDGER, "slots")
    world.kube.away()
    await world.start()
    world.agent.node.admission.patience = 0.3
    new = Pod.of({MEMORY: 32, CORES: 10})
    assert await world.kubelet.admit(new)
    assert not await world.kubelet.start(new)
    assert world.records() == {}
    world.kube.back()
    world.show(new)
    await reconciled(world)
    assert set(world.records()) == {world.slot(pod) for pod in pods}
    world.agent.node.admission.patience = 20.0
    await world.kubelet.until_running(new)
    for pod in pods:
        assert await world.kubelet.restart_container(pod)
    world.check([*pods, new])


async def test_without_annotation_the_cdi_spec_says_which_card(world: World, pods: list[Pod]) -> None:
    before = held(world)
    await world.stop()
    lose(world, LEDGER, "slots")
    for pod in pods:
        world.kube.change(pod.name, {"metadata": {"annotations": {PLACEMENT: None}}})
    await world.start()
    await reconciled(world)
    assert held(world) == before
    await until(lambda: all(PLACEMENT in each["metadata"]["annotations"] for each in world.kube.all()))
    views = await world.agent.node.slots()
    assert all("CDI spec" in view.message for view in views)


async def test_a_node_that_was_rebooted(world: World, pods: list[Pod]) -> None:
    """The tmpfs and the specs are gone, and the kubelet starts the same pods again with what they had."""
    before, given = held(world), [world.given(pod) for pod in pods]
    await world.stop()
    await world.kubelet.go_down()
    for path in world.cdi.iterdir():
        path.unlink()
    for usage in list(world.mounts.there):
        world.mounts.detach(usage)
    for pod in pods:
        pod.container("main").state = pod.container("main").state.WAITING
    await world.kubelet.come_up()
    await world.start()
    for pod in pods:
        await world.kubelet.until_running(pod)
    assert held(world) == before
    assert [world.given(pod) for pod in pods] == given
    for pod in pods:
        assert world.agent.core.directories.usage(world.slot(pod)).damaged == ""
    world.check(pods)


@pytest.mark.parametrize("step", ["reserve", "put_in_force", "secure", "attend"])
async def test_a_kill_between_two_steps_of_a_new_slot_leaves_nothing_wrong(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    class Killed(BaseException):
        pass

    pod = Pod.of({MEMORY: 16, CORES: 25})
    world.show(pod)
    assert await world.kubelet.admit(pod)
    core, node = world.agent.core, world.agent.node
    await until(lambda: node.sight.pod(pod.uid))
    await node.admission.read_checkpoint()
    where = {"reserve": core.ledger, "put_in_force": core.directories, "secure": core.specs}

    def after(*_: object, **__: object) -> None:
        raise Killed

    name = {"reserve": "commit", "put_in_force": "create", "secure": "write"}.get(step)
    if name is None:
        monkeypatch.setattr(node, "_attend", after)
    else:
        monkeypatch.setattr(where[step], name, after)
    with pytest.raises(Killed):
        await node.admission._see_to(Owner(pod.uid, "main"), world.clock() + 5, True)
    monkeypatch.undo()
    await world.restart()
    for record in world.records().values():
        assert not record.reserved
    assert await world.kubelet.start(pod), pod.container("main").message
    world.check([pod])
    assert held(world) == {world.slot(pod): {uuid_of(0): (16, 25)}}
    assert world.agent.core.ledger.free()[uuid_of(0)].units == 48


async def test_a_kill_in_the_middle_of_a_release(world: World, pods: list[Pod]) -> None:
    slot = world.slot(pods[0])
    for task in world.agent.tasks:
        task.cancel()
    await world.kubelet.delete(pods[0])
    world.kube.remove(pods[0].name)
    record = await world.agent.node.do(world.agent.core.ledger.release, slot)
    assert record.releasing
    await world.restart()
    await until(lambda: slot not in world.records())
    await until(lambda: slot not in world.agent.core.directories.slots())
    await until(lambda: not world.agent.core.allocations.of(pods[0].uid))
    world.check(pods[1:])


async def test_directories_that_are_no_slots_are_cleared_away(world: World, pods: list[Pod]) -> None:
    await world.stop()
    stray = world.state / "slots" / "half--made"
    stray.mkdir()
    before = sorted(path.name for path in (world.state / "slots").iterdir())
    await world.start()
    assert world.agent.core.directories.slots() == [name for name in before if name != stray.name]
    assert Path(stray).exists() is False
    world.check(pods)
