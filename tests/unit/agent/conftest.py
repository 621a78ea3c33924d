"""A whole node in this process: real ledger, real pages, real processes; only the driver is played."""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.agent.core import Core
from gaia_plugin.agent.node import LocalNode
from gaia_plugin.agent.readings import Reader, inventory
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu import Card, Topology, Use
from gaia_plugin.ledger import Ledger
from gaia_plugin.metrics.tally import Tally
from gaia_plugin.slots import pages
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.processes import start_time
from gaia_plugin.units import GIB, MIB

CARDS = ("GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002")
CONTEXT = 300 * MIB


@dataclass
class PlayedGpus:
    """Two 24 GiB cards; what each process holds is what a test says."""

    held: dict[str, dict[int, int | None]] = field(default_factory=lambda: {uuid: {} for uuid in CARDS})
    lost: set[str] = field(default_factory=set)
    asked: int = 0
    uses: dict[str, list[Use]] = field(default_factory=lambda: {uuid: [] for uuid in CARDS})
    no_uses: bool = False

    def cards(self) -> tuple[Card, ...]:
        return tuple(
            Card(uuid, index, "Played 24", 24 * GIB, 512 * MIB, f"0000:0{index}:00.0", 0)
            for index, uuid in enumerate(CARDS)
        )

    def topology(self) -> Topology:
        return Topology()

    def memory_used(self, uuid: str) -> int:
        return sum(figure or 0 for figure in self.held[uuid].values())

    def processes(self, uuid: str) -> dict[int, int | None]:
        self.asked += 1
        if uuid in self.lost:
            raise Refusal(Code.UNAVAILABLE, "The driver gives no figure.")
        return dict(self.held[uuid])

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        if self.no_uses:
            raise Refusal(Code.UNAVAILABLE, "Not Supported.")
        return tuple(use for use in self.uses[uuid] if use.at > since)


class UsagePage:
    """Writes a slot's usage page as a process of the slot would."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def claim(self, place: int, pid: int, card: int = 0, **words: int) -> None:
        numbers = pages.layout()
        base = numbers["usage.process"] + place * numbers["usage.process.bytes"]
        start = start_time(pid)
        assert start is not None
        on_card = base + numbers["usage.process.card"] + card * numbers["usage.process.card.bytes"]
        with open(self._path, "r+b") as page:
            page.seek(numbers["usage.high_water"])
            (highest,) = struct.unpack("=Q", page.read(8))
            page.seek(numbers["usage.high_water"])
            page.write(struct.pack("=Q", max(highest, place + 1)))
            for name, value in words.items():
                page.seek(on_card + numbers[f"usage.process.card.{name}"])
                page.write(struct.pack("=Q", value))
            page.seek(base + numbers["usage.process.owner"])
            page.write(struct.pack("=Q", pages.owner_word(pid, start)))


@dataclass
class Machine:
    state: Path
    gpus: PlayedGpus
    node: LocalNode

    def usage(self, slot: str) -> UsagePage:
        return UsagePage(self.node.core.directory(slot) / "usage")

    def limit(self, slot: str, card: str = CARDS[0]) -> int:
        """Units that the slot's page has in force."""
        core = self.node.core
        return core.directories.in_force(core.ledger.slot(slot))[card].units


def start_node(tmp_path: Path, gpus: PlayedGpus) -> LocalNode:
    driver, shadows, state = tmp_path / "driver", tmp_path / "shadows", tmp_path / "state"
    for directory in (driver, shadows, state):
        directory.mkdir(exist_ok=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (directory / name).write_bytes(b"stand-in")
    core = Core(
        state,
        driver,
        inventory(gpus),
        Ledger(state / "ledger.sqlite"),
        SlotDirectories(state, shadows, context_bytes=CONTEXT),
        CONTEXT,
    )
    return LocalNode(
        core,
        Reader(gpus, core.directories.members),
        ThreadPoolExecutor(1),
        ThreadPoolExecutor(1),
        meter=Tally(),
    )


async def end_node(node: LocalNode) -> None:
    await node.close()
    node._work.shutdown()
    node._asking.shutdown()
    node.core.close()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    gpus = PlayedGpus()
    node = start_node(tmp_path, gpus)
    await node.open()
    machine = Machine(tmp_path / "state", gpus, node)
    yield machine
    await end_node(machine.node)


@pytest.fixture
def restart(machine: Machine, tmp_path: Path) -> Callable[[], Any]:
    """Another agent on the same state, after the first was dropped as SIGKILL would."""

    async def again() -> None:
        await end_node(machine.node)
        machine.node = start_node(tmp_path, machine.gpus)
        await machine.node.open()

    return again


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that ends when the test does."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def until() -> Callable[[Callable[[], Any]], Any]:
    """Wait on the event loop until something holds; fail after a deadline."""

    async def wait(holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while True:
                outcome = holds()
                if asyncio.iscoroutine(outcome):
                    outcome = await outcome
                if outcome:
                    return
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def polled() -> Callable[[Callable[[], object]], None]:
    """Return a function that waits until something is so."""

    def wait(so: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30.0
        while not so():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.01)

    return wait
