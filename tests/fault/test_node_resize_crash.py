"""SIGKILL between each two steps of a grow and of a start: afterwards ledger, page and `GPUNode` agree."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gaia_plugin import paths
from gaia_plugin.api.client import NodeClient
from gaia_plugin.errors import Refusal
from gaia_plugin.units import MEMORY_UNIT
from tests.fault.node_lives import Lives
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.kubelet.resizing import growing, seen
from tests.support.kubelet import Pod, until

GROW = ("before:hold", "after:hold", "before:plan", "before:put", "after:put", "before:commit")
IN_FORCE = ("after:commit", "before:store", "after:store")
START = ("after:reserve", "before:plan", "before:put", "after:put", "before:commit", "after:commit")
SPECS = ("before:secure", "after:secure")


@pytest.fixture
async def lives(world: World, tmp_path: Path) -> AsyncIterator[Lives]:
    lives = await Lives.begin(world, tmp_path / "agent.log")
    yield lives
    await lives.end()


def client(world: World) -> NodeClient:
    return NodeClient(paths.operator_socket(world.state))


async def resize(world: World, pod: Pod, units: int) -> None:
    """Ask for another size as an operator does; the agent may die of it."""
    with contextlib.suppress(Refusal):
        await asyncio.to_thread(client(world).resize, world.slot(pod), memory=units * MEMORY_UNIT)


def amounts(world: World, pod: Pod) -> tuple[int, int, int, int, int] | None:
    """Units in force and held by ledger and object, and by the page; None: the agent does not answer."""
    try:
        view = client(world).slot(world.slot(pod))
    except Refusal:
        return None
    said = [slot for slot in seen(world).status.slots if slot.uid == pod.uid]
    if len(said) != 1:
        return None
    granted, held = (
        sum(getattr(part, each).memory for part in said[0].slices) for each in ("granted", "held")
    )
    page = sum(units for units, _ in world.given(pod).cards.values())
    return view.granted.memory // MEMORY_UNIT, view.held.memory // MEMORY_UNIT, granted, held, page


async def at_rest(world: World, pod: Pod, units: int) -> None:
    """Wait until everybody says that a pod has so many units and holds no more."""
    await until(lambda: amounts(world, pod) == (units,) * 5, 60)


async def dies(lives: Lives) -> None:
    async with asyncio.timeout(60):
        assert await lives.ended() == -signal.SIGKILL


@pytest.mark.parametrize(("points", "expected"), [(GROW, 16), (IN_FORCE, 32)], ids=["booked", "in force"])
async def test_a_grow_is_whole_or_not_at_all(
    world: World, lives: Lives, points: tuple[str, ...], expected: int
) -> None:
    await lives.start()
    await world.registered()
    pod = await world.run(growing(16))
    await at_rest(world, pod, 16)
    for point in points:
        await lives.kill()
        await lives.start(point)
        await until(lambda: amounts(world, pod) is not None, 60)
        await until(lambda: seen(world).status.ready, 60)
        await resize(world, pod, 32)
        await dies(lives)
        await lives.start()
        await at_rest(world, pod, expected)
        await resize(world, pod, 16)
        await at_rest(world, pod, 16)


async def test_a_start_is_whole_or_not_at_all(world: World, lives: Lives) -> None:
    await lives.start()
    for point in (*START, *SPECS):
        await lives.kill()
        await lives.start(point)
        await world.registered()
        pod = Pod.of({MEMORY: 16, CORES: 25})
        world.show(pod)
        assert await world.kubelet.admit(pod)
        assert not await world.kubelet.start(pod)
        await dies(lives)
        await lives.start()
        await world.registered()
        await world.kubelet.until_running(pod)
        world.report(pod)
        await at_rest(world, pod, 16)
        await world.delete(pod)
        await until(lambda: not seen(world).status.slots, 60)
