"""SIGKILL at any moment in a storm of grows, shrinks, pods and reservations: in the end all records agree.

Ledger, pages, `GPUNode`, and the devices that the kubelet is told of.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from gaia_plugin import paths
from gaia_plugin.api.client import NodeClient
from gaia_plugin.errors import Refusal
from gaia_plugin.ledger import Ledger
from gaia_plugin.units import MEMORY_UNIT
from tests.fault.conftest import CARDS
from tests.fault.node_lives import Lives, Storm
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.kubelet.resizing import seen
from tests.support.kubelet import Pod, until

MOST = 20
"""Units that a pod may grow to: nine such pods and a reservation leave room for a tenth on some card."""

UNITS = CARDS * 64


@dataclass
class Changing(Storm):
    """Pods that change their sizes, too, beside an extender that promises and takes back."""

    resized: int = 0
    refused: int = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._promise())
            self._begin(group)

    def pod(self, units: int) -> Pod:
        return Pod.of({MEMORY: units, CORES: units}, annotations={"gaia.io/vgpu-max-memory": str(MOST)})

    async def _step(self, pod: Pod) -> None:
        if pod.running and self.dice.random() < 0.6:
            await self.resize(pod, self.dice.randrange(1, MOST + 1))
        else:
            await super()._step(pod)

    async def resize(self, pod: Pod, units: int) -> None:
        client = NodeClient(paths.operator_socket(self.world.state))
        try:
            await asyncio.to_thread(client.resize, self.world.slot(pod), memory=units * MEMORY_UNIT)
        except Refusal:  # no agent, no room, or no slot
            self.refused += 1
        else:
            self.resized += 1

    async def _promise(self) -> None:
        """Reserve something on some card for somebody, and take it back, over and over."""
        number = 0
        while not self.calm:
            number += 1
            cards = [card.uuid for card in seen(self.world).status.cards] if self.world.kube.gpunode() else []
            if cards:
                amounts = {"memory": self.dice.randrange(1, 9), "cores": 1}
                card = self.dice.choice(cards)
                self.world.kube.reserve(
                    {"uid": f"promised-{number}", "container": "main", "card": card, "amounts": amounts}
                )
            await asyncio.sleep(self.dice.random() * 0.1)
        if self.world.kube.gpunode():
            self.world.kube.reserve()


def said(world: World) -> dict[str, tuple[int, int]]:
    """Units in force and held by UID, as the object has it."""
    return {
        slot.uid: (
            sum(part.granted.memory for part in slot.slices),
            sum(part.held.memory for part in slot.slices),
        )
        for slot in seen(world).status.slots
    }


def in_pages(world: World, pods: list[Pod]) -> dict[str, tuple[int, int]]:
    """The same by the pages, where nothing is held beyond what is in force."""
    amounts = {pod.uid: sum(units for units, _ in world.given(pod).cards.values()) for pod in pods}
    return {uid: (units, units) for uid, units in amounts.items()}


async def settled(world: World, lives: Lives, storm: Changing) -> None:
    """Let every pod run and everything come to rest; then compare all records."""
    await world.registered()
    for pod in storm.pods:
        async with asyncio.timeout(180):
            while not pod.running:
                await Storm._step(storm, pod)
                await asyncio.sleep(0.02)
        world.report(pod)
    await until(lambda: said(world) == in_pages(world, storm.pods), 60)
    held = sum(units for units, _ in in_pages(world, storm.pods).values())
    out = sum(pod.container("main").limits[MEMORY] for pod in storm.pods)
    await until(lambda: world.kubelet.allocatable(MEMORY) == out + UNITS - held, 60)
    await lives.kill()
    with Ledger(world.state / "ledger.sqlite") as ledger:
        assert ledger.overbooked() == {}
        booked = {record.owner: (record.target.units, record.held.units) for record in ledger.slots()}
    assert booked == in_pages(world, storm.pods) == said(world)


async def kill_often(world: World, log: Path, times: int, seed: int) -> Changing:
    dice = random.Random(seed)
    lives = await Lives.begin(world, log)
    storm = Changing(world, dice)
    running: asyncio.Task[None] | None = None
    try:
        await lives.start()
        await world.registered()
        for number in range(1, times + 1):
            if running is None:
                storm.calm = False
                running = asyncio.create_task(storm.run())
            if dice.random() < 0.7:  # else it is killed while it recovers
                await world.registered()
            await asyncio.sleep(dice.random() * 0.5)
            await lives.kill()
            await lives.start()
            if number % 10 == 0:
                storm.calm = True
                await running
                running = None
                await settled(world, lives, storm)
                await lives.start()
        return storm
    finally:
        if running is not None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        await lives.end()


async def test_fifty_kills_among_resizes_and_all_records_agree(world: World, tmp_path: Path) -> None:
    storm = await kill_often(world, tmp_path / "agent.log", 50, seed=5)
    assert storm.started
    assert storm.resized


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
async def test_a_thousand_kills_among_resizes_and_all_records_agree(
    world: World, tmp_path: Path, seed: int
) -> None:
    await kill_often(world, tmp_path / "agent.log", 100, seed=100 + seed)
