"""Cards that fall sick under a running agent: nothing new starts on them, what runs there goes on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from gaia_plugin.sim import SimConfig, Simulation, make_sim
from tests.fault.node_lives import Lives
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.support.kubelet import Pod, until


async def told(world: World) -> str:
    """What `gaia cards` prints."""
    program = Path(sys.executable).with_name("gaia")
    asked = await asyncio.create_subprocess_exec(
        program, "cards", "--state", str(world.state), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await asked.communicate()
    assert asked.returncode == 0
    return printed.decode()


@pytest.fixture
def simulation(world: World, tmp_path: Path) -> Simulation:
    shutil.rmtree(world.driver)
    make_sim(world.driver, SimConfig(cards=2, state=tmp_path / "sim"))
    return Simulation(world.driver)


async def test_an_xid_takes_its_card_out_of_use_and_leaves_alone_what_runs(
    world: World, simulation: Simulation, tmp_path: Path
) -> None:
    lives = await Lives.begin(world, tmp_path / "agent.log")
    try:
        await lives.start()
        await world.registered()
        await until(lambda: world.kubelet.allocatable(CORES) == 200)
        whole = world.kubelet.allocatable(MEMORY)
        pods = [await world.run(Pod.of({MEMORY: 20, CORES: 30})) for _ in range(2)]
        assert world.given(pods[0]).cards.keys() == world.given(pods[1]).cards.keys()
        (uuid,) = world.given(pods[0]).cards
        listed = await told(world)
        (index,) = (at for at in range(2) if f"{uuid}" in listed.split("\n")[at + 2])

        simulation.xid(index, 31)  # a program's own fault
        await until(lambda: "a program's fault" in (tmp_path / "agent.log").read_text())
        assert world.kubelet.allocatable(MEMORY) == whole

        simulation.xid(index, 79)
        await until(lambda: world.kubelet.allocatable(CORES) == 100)
        assert world.kubelet.allocatable(MEMORY) == whole // 2
        assert f"Card {index}: The driver reported XID 79" in await told(world)
        for pod in pods:
            assert world.given(pod).cards.keys() == {uuid}
            assert await world.kubelet.restart_container(pod)
            assert world.given(pod).slot == world.slot(pod)
        other = await world.run(Pod.of({MEMORY: 20, CORES: 30}))
        assert uuid not in world.given(other).cards

        os.kill(lives.pid, signal.SIGTERM)
        assert await lives.ended() == 0
        await lives.start()
        await world.registered()
        await until(lambda: world.kubelet.allocatable(CORES) == 200)
        assert "XID" not in await told(world)
    finally:
        await lives.end()
