"""The agent of a node as a process: one at a time, a driver that comes late, a runtime without CDI."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from gaia_plugin.sim import SimConfig, make_sim
from tests.fault.node_lives import Lives, Storm, settled
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.support.kubelet import Pod, until


async def test_c24_two_agents(world: World, tmp_path: Path) -> None:
    """The first is stopped at a random moment and goes on; the second serves nothing until it is gone."""
    dice = random.Random(24)
    first, second = await Lives.begin(world, tmp_path / "a.log"), await Lives.begin(world, tmp_path / "b.log")
    try:
        await first.start()
        await world.registered()
        storm = Storm(world, dice)
        running = asyncio.create_task(storm.run())
        for _ in range(5):
            await asyncio.sleep(dice.random() * 0.3)
            os.kill(first.pid, signal.SIGSTOP)
            await second.start()
            assert await second.ended() == 17
            os.kill(first.pid, signal.SIGCONT)
        storm.calm = True
        await running
        await settled(world, first, storm)
        await second.start()
        await world.registered()
        pod = await world.run(Pod.of({MEMORY: 4, CORES: 4}))
        assert world.given(pod).slot == world.slot(pod)
    finally:
        await first.end()
        await second.end()
    assert (tmp_path / "b.log").read_text().count("this one serves nothing and ends") == 5


async def test_a_driver_that_comes_late_is_waited_for(world: World, tmp_path: Path) -> None:
    shutil.rmtree(world.driver)
    lives = await Lives.begin(world, tmp_path / "agent.log")
    try:
        await lives.start()
        await until(lambda: "waiting for the driver" in (tmp_path / "agent.log").read_text())
        assert world.kubelet.registrations == []
        make_sim(world.driver, SimConfig(cards=1, state=tmp_path / "sim"))
        await world.registered()
        pod = await world.run(Pod.of({MEMORY: 4, CORES: 4}))
        assert world.given(pod).slot == world.slot(pod)
        os.kill(lives.pid, signal.SIGTERM)
        assert await lives.ended() == 0
    finally:
        await lives.end()


@pytest.mark.parametrize(
    ("runtime", "sentence"),
    [("containerd://1.6.20", "Gaia needs CDI 0.6"), ("cri-o://1.20.1", "Gaia needs CDI 0.6")],
)
async def test_a_runtime_without_cdi_is_refused_at_the_start(
    world: World, tmp_path: Path, runtime: str, sentence: str
) -> None:
    node = {
        "metadata": {"name": "node1", "uid": "n"},
        "status": {"nodeInfo": {"containerRuntimeVersion": runtime}},
    }
    world.kube.put(node, "v1/nodes")
    lives = await Lives.begin(world, tmp_path / "agent.log", check_runtime=True)
    try:
        await lives.start()
        assert await lives.ended() == 1
    finally:
        await lives.end()
    last = (tmp_path / "agent.log").read_text().splitlines()[-1]
    assert last.startswith("gaia: ")
    assert sentence in last
    assert world.kubelet.registrations == []


async def test_more_memory_than_the_kubelet_can_be_told_of_is_refused_at_the_start(
    world: World, tmp_path: Path
) -> None:
    shutil.rmtree(world.driver)
    make_sim(world.driver, SimConfig(cards=16, memory=1 << 42, state=tmp_path / "sim"))
    lives = await Lives.begin(world, tmp_path / "agent.log")
    try:
        await lives.start()
        assert await lives.ended() == 1
    finally:
        await lives.end()
    assert "takes no message above 4 MiB" in (tmp_path / "agent.log").read_text()
