"""A node with four simulated cards, a kubelet and an API server; its agent is for the test to start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gaia_plugin.sim import SimConfig, make_sim
from gaia_plugin.units import GIB
from tests.kubelet.node_world import World
from tests.support.kubeapi import FakeKubeApi

CARDS = 4


@pytest.fixture
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="gf"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
async def world(place: Path) -> AsyncIterator[World]:
    with FakeKubeApi() as kube:
        world = World(place, kube)
        shutil.rmtree(world.driver)
        make_sim(world.driver, SimConfig(cards=CARDS, memory=16 * GIB, reserved=0, state=place / "sim-state"))
        async with world.kubelet:
            yield world
