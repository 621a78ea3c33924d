"""A disk that takes nothing more, at the start and while the agent runs: a sentence, nothing half made."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest

from gaia_plugin.sim import Simulation
from tests.fault.node_lives import Lives
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.support.kubelet import Pod, until

FULL = 24_000
"""Bytes that no file may exceed while the disk is full: less than any of the agent's files needs."""


def limit(pid: int, size: int) -> None:
    """Let no file grow beyond `size`, as a full disk lets none; -1 ends that."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


@pytest.fixture
def lives_log(tmp_path: Path) -> Path:
    return tmp_path / "agent.log"


async def test_at_the_start_it_ends_with_a_sentence_and_the_next_start_finds_nothing_broken(
    world: World, lives_log: Path
) -> None:
    held = Simulation(world.driver)  # its state must not be what does not fit
    lives = await Lives.begin(world, lives_log)
    try:
        for size in (6_000, FULL):
            limit(lives.process.pid, size)
            await lives.start()
            assert await lives.ended() == 1
            sentence = lives_log.read_text().splitlines()[-1]
            assert sentence.startswith("gaia: ")
            assert str(world.state) in sentence
            assert "Traceback" not in lives_log.read_text()
            assert world.kubelet.registrations == []
        limit(lives.process.pid, -1)
        await lives.start()
        await world.registered()
        pod = await world.run(Pod.of({MEMORY: 4, CORES: 4}))
        assert world.given(pod).slot == world.slot(pod)
    finally:
        await lives.end()
    assert held.processes() == ()


async def test_while_it_runs_it_refuses_with_a_sentence_and_goes_on_when_there_is_room(
    world: World, lives_log: Path
) -> None:
    # full for longer than a pod waits for room: that must not end it
    lives = await Lives.begin(world, lives_log, no_room_seconds=1)
    try:
        await lives.start()
        await world.registered()
        running = await world.run(Pod.of({MEMORY: 4, CORES: 4}))
        before = world.given(running)
        limit(lives.pid, FULL)
        pod = Pod.of({MEMORY: 8, CORES: 10})
        world.show(pod)
        assert await world.kubelet.admit(pod), "an Allocate must not fail: that would be final"
        for _ in range(3):
            assert not await world.kubelet.start(pod)
        said = pod.container("main").message
        assert "cannot" in said
        assert said.count(".") < 6
        assert [each.name for each in (world.state / "slots").glob("[!.]*")] == [world.slot(running)]
        assert world.given(running) == before
        limit(lives.pid, -1)
        await world.kubelet.until_running(pod)
        assert world.given(pod).slot == world.slot(pod)
        assert world.given(running) == before
        await asyncio.gather(world.delete(running), world.delete(pod))
        await until(lambda: not list((world.state / "slots").glob("[!.]*")))
    finally:
        await lives.end()
    assert "Traceback" not in lives_log.read_text()
