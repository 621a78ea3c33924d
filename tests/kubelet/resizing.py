"""Pods that may grow, and what `GPUNode`, ledger and page say of them."""

from __future__ import annotations

from typing import Any

import msgspec

from gaia_plugin.api import models
from gaia_plugin.kube.gpunode import GpuNode
from gaia_plugin.units import MEMORY_UNIT
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.support.kubeapi.faults import Asked
from tests.support.kubelet import Pod, until

DESIRED = "gaia.io/vgpu-desired"


def growing(
    units: int = 16, cores: int = 25, *, most: int = 64, annotations: dict[str, str] | None = None
) -> Pod:
    """A pod that may grow to the whole card, or to `most` units."""
    maxima = {"gaia.io/vgpu-max-memory": str(most), "gaia.io/vgpu-max-cores": "100"}
    return Pod.of({MEMORY: units, CORES: cores}, annotations={**maxima, **(annotations or {})})


def promised(uid: str, units: int, cores: int = 1, *, card: int = 0) -> dict[str, Any]:
    """A reservation as the extender writes it."""
    amounts = {"memory": units, "cores": cores}
    return {"uid": uid, "container": "main", "card": uuid_of(card), "amounts": amounts, "pod": "default/x"}


def units(amount: int) -> models.Resize:
    """A wish for so many units in total."""
    return models.Resize(memory=amount * MEMORY_UNIT)


def is_status(asked: Asked) -> bool:
    """Match a write of the agent's."""
    return asked.method == "PUT" and asked.path.endswith("/status")


def is_node(asked: Asked) -> bool:
    """Match every request about GPUNodes."""
    return "/gpunodes" in asked.path


def is_pods(asked: Asked) -> bool:
    """Match what the agent learns of pods by."""
    return asked.method == "GET" and asked.path == "/api/v1/pods"


async def resize(world: World, pod: Pod, amount: int, generation: int | None = None) -> models.Resized:
    """Ask for so many units, as the slot's socket does."""
    return await world.agent.node.resize(world.slot(pod), units(amount), generation)


def seen(world: World) -> GpuNode:
    """The object as the API server has it."""
    item = world.kube.gpunode()
    assert item is not None, "there is no GPUNode"
    return msgspec.convert(item, GpuNode)


def told(world: World, pod: Pod) -> tuple[int, int, str] | None:
    """What the object says of a pod's slot: granted and held units, and its state."""
    for slot in seen(world).status.slots:
        if slot.uid == pod.uid:
            return (
                sum(part.granted.memory for part in slot.slices),
                sum(part.held.memory for part in slot.slices),
                slot.state,
            )
    return None


def booked(world: World, pod: Pod) -> tuple[int, int] | None:
    """What the ledger has of a pod's slot: units in force, and held."""
    record = world.records().get(world.slot(pod))
    return None if record is None else (record.target.units, record.held.units)


async def agreed(world: World, *pods: Pod) -> None:
    """Wait until object, ledger and page of these pods, and of no others, say the same."""
    await until(lambda: _same(world, *pods), 30)


def _same(world: World, *pods: Pod) -> bool:
    listed = {slot.uid for slot in seen(world).status.slots}
    if listed != {pod.uid for pod in pods} or len(world.records()) != len(pods):
        return False
    for pod in pods:
        said, has = told(world, pod), booked(world, pod)
        page = sum(memory for memory, _ in world.given(pod).cards.values())
        if said is None or has is None or said[:2] != has or page != has[0]:
            return False
    return True
