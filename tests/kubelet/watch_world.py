"""A node on the simulated driver, with programs that are in containers as far as /proc tells."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gaia_plugin.agent import loops
from gaia_plugin.agent.pods.findings import Findings
from gaia_plugin.agent.pods.watchdog import Watchdog
from gaia_plugin.gpu import Card, Topology
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.kube.gpunode import Condition
from gaia_plugin.shares import Share
from gaia_plugin.sim import CardConfig, SimConfig, make_sim
from gaia_plugin.slots import pages
from gaia_plugin.slots.members import ContainerMembers
from gaia_plugin.slots.processes import start_time
from gaia_plugin.units import GIB, MIB
from tests.kubelet.node_world import Cards, World, uuid_of
from tests.support.kubeapi import FakeKubeApi
from tests.support.kubelet import Pod

ROGUE = Path(__file__).with_name("rogue.py")
OUTSIDE = "0::/user.slice/user-1000.slice\n"


class SimulatedCards(Cards):
    """The cards of a simulated driver."""

    def __init__(self, driver: Path) -> None:
        super().__init__()
        self.nvml = Nvml(driver)
        self.silent = False
        """No process has a figure, as under some drivers."""

    def cards(self) -> tuple[Card, ...]:
        return self.nvml.cards()

    def topology(self) -> Topology:
        return self.nvml.topology()

    def memory_used(self, uuid: str) -> int:
        return self.nvml.memory_used(uuid)

    def processes(self, uuid: str) -> dict[int, int | None]:
        found = self.nvml.processes(uuid)
        return dict.fromkeys(found) if self.silent else found


class Proc:
    """A /proc in which programs of this machine are in the containers that a test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def add(self, pid: int, cgroup: str) -> None:
        place = self.root / str(pid)
        place.mkdir(exist_ok=True)
        if not (place / "stat").is_symlink():
            (place / "stat").symlink_to(f"/proc/{pid}/stat")
        (place / "status").write_text(f"Name:\trogue\nNSpid:\t{pid}\n")
        (place / "cgroup").write_text(cgroup)


@dataclass
class Program:
    """A running `rogue.py`."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def hold(self, mib: int) -> int:
        """Hold so many MiB from now on; return the driver's code."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{mib}\n")
        self.process.stdin.flush()
        return self.said()

    def said(self) -> int:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended with {self.process.wait()}"
        return int(line)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@dataclass
class Watched:
    """A world whose programs the watchdog looks at."""

    world: World
    driver: Path
    proc: Proc
    programs: list[Program] = field(default_factory=list)

    @property
    def dog(self) -> Watchdog:
        assert self.world.agent.node.watchdog is not None
        return self.world.agent.node.watchdog

    @property
    def findings(self) -> Findings:
        return self.dog.findings

    @property
    def condition(self) -> Condition:
        (condition,) = self.world.agent.node.conditions()
        return condition

    @property
    def events(self) -> list[tuple[str, str, str]]:
        """Name of the pod, reason and sentence of what was said."""
        return [(each["regarding"]["name"], each["reason"], each["note"]) for each in self.world.kube.events]

    def start(self, pod: Pod | None, mib: int = 0, *, card: int = 0) -> Program:
        """Start a program in a pod's container (None: in no pod) that holds `mib` past the library."""
        process = subprocess.Popen(
            [sys.executable, "-S", str(ROGUE), str(self.driver), str(card)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        program = Program(process)
        self.programs.append(program)
        self.place(program.pid, pod)
        assert program.said() == 0
        if mib:
            assert program.hold(mib) == 0
        return program

    def place(self, pid: int, pod: Pod | None) -> None:
        if pod is None:
            self.proc.add(pid, OUTSIDE)
            return
        self.proc.add(pid, f"0::/kubepods/pod{pod.uid}/{pod.container('main').id}\n")

    async def run(self, limits: dict[str, int], **more: object) -> Pod:
        """Run a pod; its container has an ID such as runtimes give."""
        pod = await self.world.run(Pod.of(limits, **more))
        self.report(pod)
        return pod

    def report(self, pod: Pod) -> None:
        container = pod.container("main")
        container.id = (container.id * 2)[:64]
        self.world.report(pod)

    def register(self, pod: Pod, pid: int, *, place: int = 0, used: int = 0, library: int = 0) -> None:
        """Put a process into a pod's usage page, as the library would."""
        claim(self.usage(pod), pid, place=place, used=used, library=library)

    def usage(self, pod: Pod) -> Path:
        return self.world.agent.core.directories.usage_path(self.world.slot(pod))

    async def rounds(self, count: int = 2) -> None:
        """Let time pass: the driver is looked at, and the watchdog goes round."""
        for _ in range(count):
            await loops.observe(self.world.agent.node)
            await self.world.agent.node.watch_once()

    def free(self, card: int = 0) -> Share:
        known = self.world.agent.core.ledger.cards()
        return self.world.agent.core.ledger.free()[known[card].uuid]

    def held(self, pod: Pod) -> int:
        return self.world.records()[self.world.slot(pod)].held.units


def claim(page: Path, pid: int, *, place: int = 0, used: int = 0, library: int = 0) -> None:
    """Write one process into a usage page."""
    numbers, start = pages.layout(), start_time(pid)
    assert start is not None
    base = numbers["usage.process"] + place * numbers["usage.process.bytes"]
    words = {
        numbers["usage.high_water"]: place + 1,
        base + numbers["usage.process.library"]: library,
        base + numbers["usage.process.card"] + numbers["usage.process.card.used"]: used,
        base + numbers["usage.process.owner"]: pages.owner_word(pid, start),
    }
    with open(page, "r+b") as file:
        for offset, value in words.items():
            os.pwrite(file.fileno(), struct.pack("=Q", value), offset)


@asynccontextmanager
async def watched_node(place: Path, kube: FakeKubeApi, cards: int) -> AsyncIterator[Watched]:
    """A node with so many simulated cards of 8 GiB; its programs end with it."""
    each = {index: CardConfig(uuid=uuid_of(index)) for index in range(cards)}
    state = place / "sim-state"
    config = SimConfig(cards, memory=8 * GIB + 512 * MIB, each=each, state=state, backed=False)
    driver = make_sim(place / "sim", config)
    played, proc = SimulatedCards(driver), Proc(place / "proc")
    members = ContainerMembers(place / "state" / "slots", proc=proc.root)
    watched = Watched(World(place, kube, cards=played, members=members), driver, proc)
    try:
        async with watched.world.kubelet:
            await watched.world.start()
            await watched.world.agent.node.admission.reconciled.wait()
            yield watched
            await watched.world.stop()
    finally:
        for program in watched.programs:
            program.end()
        played.nvml.close()
