"""SIGKILL at any moment during a storm of pods, container and kubelet restarts: in the end all records agree.

The kubelet's record, the names that were answered, the ledger, the pages and the CDI specs.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.fault.node_lives import Lives, Storm, settled
from tests.kubelet.node_world import World


async def kill_often(world: World, log: Path, times: int, seed: int) -> Storm:
    dice = random.Random(seed)
    lives = await Lives.begin(world, log)
    try:
        await lives.start()
        await world.registered()
        storm = Storm(world, dice)
        for number in range(1, times + 1):
            if number % 10 == 1:
                storm.calm = False
                running = asyncio.create_task(storm.run())
            if dice.random() < 0.7:  # else it is killed while it recovers
                await world.registered()
            await asyncio.sleep(dice.random() * 0.4)
            if dice.random() < 0.2:
                await world.kubelet.restart()
            await lives.kill()
            if number % 25 == 0:
                for lost in world.state.glob(dice.choice(["ledger.sqlite*", "allocations.sqlite*"])):
                    lost.unlink()
            await lives.start()
            if number % 10 == 0:
                storm.calm = True
                await running
                await settled(world, lives, storm)
                await lives.start()
                world.kube.compact()
        return storm
    finally:
        await lives.end()


async def test_fifty_kills_and_all_records_agree(world: World, tmp_path: Path) -> None:
    storm = await kill_often(world, tmp_path / "agent.log", 50, seed=4)
    assert storm.started
    assert storm.restarted


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
async def test_a_thousand_kills_and_all_records_agree(world: World, tmp_path: Path, seed: int) -> None:
    await kill_often(world, tmp_path / "agent.log", 100, seed=seed)
