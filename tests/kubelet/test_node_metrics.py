"""What metrics tell of a node of a cluster: its pods' slots, and what kubelet and API server asked of it."""

from __future__ import annotations

from gaia_plugin.agent.figures import Figures
from gaia_plugin.metrics.collector import render
from gaia_plugin.metrics.snapshot import Snapshot
from gaia_plugin.units import MEMORY_UNIT
from tests.kubelet.node_world import CORES, MEMORY, NODE, World, uuid_of
from tests.support.kubelet import Pod, until
from tests.unit.metrics.conftest import Told


async def snapshot(world: World) -> Snapshot:
    node = world.agent.node
    return await Figures(node, world.tally, name=NODE, watched=node.watched).snapshot()


async def told(world: World) -> Told:
    return Told.read(render(await snapshot(world)))


async def test_a_pods_slot_is_told_by_the_pods_names_until_it_is_gone(world: World) -> None:
    pod = await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    page = await told(world)
    whose = {
        "node": NODE, "namespace": "default", "pod": pod.name, "container": "main", "uid": pod.uid,
        "card": uuid_of(0),
    }  # fmt: skip
    for amount in ("requested", "granted", "held"):
        assert page.value(f"gaia_slot_memory_{amount}_bytes", **whose) == 16 * MEMORY_UNIT
        assert page.value(f"gaia_slot_compute_{amount}_ratio", **whose) == 0.25
    assert page.value("gaia_card_memory_free_bytes", node=NODE) == 48 * MEMORY_UNIT
    await world.delete(pod)
    await until(lambda: not world.records())
    page = await told(world)
    assert page.all("gaia_slot_state") == []
    assert page.value("gaia_card_memory_free_bytes") == 64 * MEMORY_UNIT


async def test_what_the_kubelet_asked_is_counted(world: World) -> None:
    await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    page = await told(world)
    assert page.value("gaia_allocations_total") == 2
    assert page.value("gaia_prestarts_total", outcome="ok") == 2
    assert page.value("gaia_prestart_duration_seconds_count") == 2


async def test_a_container_that_is_refused_is_counted_with_the_code(world: World) -> None:
    pod = Pod.of({MEMORY: 8, CORES: 25}, annotations={"gaia.io/vgpu-count": "2"})  # an odd number of cores
    world.show(pod)
    assert await world.kubelet.admit(pod)
    assert not await world.kubelet.start(pod)
    page = await told(world)
    refused = page.value("gaia_prestarts_total", outcome="refused")
    assert refused > 0
    assert page.value("gaia_refusals_total", code="invalid_amount") == refused
    assert sum(page.all("gaia_refusals_total")) == refused
    assert page.value("gaia_prestart_duration_seconds_count") == refused


async def test_writes_are_counted_and_a_status_that_was_taken_is_the_heartbeat(world: World) -> None:
    await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    await until(lambda: world.tally.events().writes.get(("annotation", "ok")))
    await until(lambda: world.tally.events().heartbeat)
    page = await told(world)
    assert page.value("gaia_apiserver_writes_total", what="gpunode", outcome="ok") >= 1
    assert page.value("gaia_last_heartbeat_timestamp_seconds") > 1_700_000_000


async def test_a_write_that_the_server_refuses_is_counted(world: World) -> None:
    world.kube.refuse(500, "Internal", times=3, match=lambda asked: asked.method == "PATCH")
    await world.run(Pod.of({MEMORY: 16, CORES: 25}))
    await until(lambda: world.tally.events().writes.get(("annotation", "unavailable")))
