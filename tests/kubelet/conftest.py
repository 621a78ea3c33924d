"""A small agent against the simulated kubelet."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kubelet.node_world import World
from tests.kubelet.small_agent import CORES, MEMORY, Agent, SmallHandler
from tests.support.kubeapi import FakeKubeApi
from tests.support.kubelet import SimulatedKubelet


@pytest.fixture
def place() -> Iterator[Path]:
    """A short directory: unix sockets lie in it."""
    directory = Path(tempfile.mkdtemp(prefix="gk"))
    (directory / "cdi").mkdir()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def kubelet_not_up(place: Path) -> SimulatedKubelet:
    return SimulatedKubelet(place / "kubelet", place / "cdi", seed=7)


@pytest.fixture
async def agent(place: Path) -> AsyncIterator[Agent]:
    agent = Agent(place / "kubelet", SmallHandler(place / "kubelet", place / "cdi"))
    yield agent
    await agent.stop()


@pytest.fixture
async def kubelet(kubelet_not_up: SimulatedKubelet, agent: Agent) -> AsyncIterator[SimulatedKubelet]:
    """A kubelet with which the agent is registered."""
    async with kubelet_not_up as kubelet:
        agent.start()
        await kubelet.registered(MEMORY, CORES)
        yield kubelet


@pytest.fixture
def kube() -> Iterator[FakeKubeApi]:
    with FakeKubeApi() as kube:
        yield kube


@pytest.fixture
async def world(place: Path, kube: FakeKubeApi) -> AsyncIterator[World]:
    """A node with one card of 16 GiB: the pod agent, a kubelet and an API server."""
    world = World(place, kube)
    async with world.kubelet:
        await world.start()
        await world.agent.node.admission.reconciled.wait()
        yield world
        await world.stop()
