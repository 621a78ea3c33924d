"""A simulated machine per test, with its state in the test's own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gaia_plugin.sim import SimConfig, Simulation, make_sim
from tests.sim.sim_client import Client


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Path]:
    """Make a simulated driver with the given differences from the default."""

    def make(**values: object) -> Path:
        values.setdefault("state", tmp_path / "state")
        return make_sim(tmp_path / "driver", SimConfig(**values))  # type: ignore[arg-type]

    return make


@pytest.fixture
def driver(machine: Callable[..., Path]) -> Path:
    """The default machine: two cards of 24 GiB."""
    return machine()


@pytest.fixture
def truth(driver: Path) -> Simulation:
    return Simulation(driver)


@pytest.fixture
def client(driver: Path) -> Iterator[Callable[..., Client]]:
    """Start programs on the default machine; they are killed at the end."""
    started: list[Client] = []

    def start(**environ: str) -> Client:
        started.append(Client(driver, **environ))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.kill()
        elif each.process.stdout is not None and not each.process.stdout.closed:
            each.close()
