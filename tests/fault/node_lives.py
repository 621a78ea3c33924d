"""A node whose agent is a process that can be killed, and a storm of pods on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from gaia_plugin.ledger import Ledger, SlotRecord
from gaia_plugin.ledger.allocations import Allocations
from gaia_plugin.ledger.book import violations
from gaia_plugin.slots.cdi.files import SpecFiles
from tests.kubelet.node_world import CORES, MEMORY, NODE, World
from tests.support.kubelet import Pod, until

WORKER = Path(__file__).with_name("node_worker.py")
MOST_PODS = 10


@dataclass
class Lives:
    """The agent's lives, one after the other."""

    process: asyncio.subprocess.Process
    pid: int = 0

    @classmethod
    async def begin(cls, world: World, log: Path, **changed: object) -> Lives:
        settings = {
            "node_name": NODE, "state": str(world.state), "driver": str(world.driver),
            "kubelet_dir": str(world.kubelet.directory), "cdi_dir": str(world.cdi),
            "kubeconfig": str(world.kubeconfig), "check_runtime": False, "metrics_address": "off",
            **changed,
        }  # fmt: skip
        pipe = asyncio.subprocess.PIPE
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(WORKER), json.dumps(settings), stdin=pipe, stdout=pipe, stderr=errors,
            )  # fmt: skip
        return cls(process)

    async def start(self, *dies: str) -> None:
        """Begin a life; one that `dies` at a point ends there by itself, see `tests.fault.dying`."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(("go", *dies)).encode() + b"\n")
        self.pid = int(await self._line())

    async def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert await self.ended() == -signal.SIGKILL, "it had ended by itself"

    async def ended(self) -> int:
        """Wait for its end; return its exit code."""
        word, code = (await self._line()).split()
        assert word == "ended"
        self.pid = 0
        return int(code)

    async def end(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        assert self.process.stdin is not None
        self.process.stdin.close()
        await self.process.wait()

    async def _line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()


@dataclass
class Storm:
    """Pods that come, restart and go, whether there is an agent or not."""

    world: World
    dice: random.Random
    pods: list[Pod] = field(default_factory=list)
    calm: bool = False
    started: int = 0
    restarted: int = 0

    async def run(self) -> None:
        """Let things happen until it is calm; pods that outlived the last storm are part of this one.

        So there are never more than `MOST_PODS`: more of them could fill the cards in such a way that a
        pod which the kubelet has let in finds no card with room, and waits for ever.
        """
        async with asyncio.TaskGroup() as group:
            self._begin(group)

    def _begin(self, group: asyncio.TaskGroup) -> None:
        left = [*self.pods, *[None] * MOST_PODS]
        for pod in left[:MOST_PODS]:
            group.create_task(self._place(pod))

    def pod(self, units: int) -> Pod:
        """A pod of some size."""
        return Pod.of({MEMORY: units, CORES: units})

    async def _place(self, first: Pod | None) -> None:
        """One pod after the other, each through a random life."""
        if first is not None:
            await self._live(first)
        while not self.calm:
            units = self.dice.choice([4, 8, 16])
            pod = self.pod(units)
            self.world.show(pod)
            if not await self.world.kubelet.admit(pod):  # no plugin is there
                self.world.kubelet.pods.remove(pod)
                self.world.kube.remove(pod.name)
                await asyncio.sleep(0.05)
                continue
            self.pods.append(pod)
            await self._live(pod)

    async def _live(self, pod: Pod) -> None:
        for _ in range(self.dice.randrange(1, 12)):
            if self.calm:
                return
            await self._step(pod)
            await asyncio.sleep(self.dice.random() * 0.06)
        self.pods.remove(pod)
        await self.world.delete(pod)

    async def _step(self, pod: Pod) -> None:
        if not pod.running:
            self.started += await self.world.kubelet.start(pod)
        elif self.dice.random() < 0.4:
            self.restarted += await self.world.kubelet.restart_container(pod)
        self.world.report(pod)


async def settled(world: World, lives: Lives, storm: Storm) -> None:
    """Let every pod run, then end the agent and compare all records."""
    await world.registered()
    for pod in storm.pods:
        async with asyncio.timeout(180):
            while not pod.running:
                await storm._step(pod)
                await asyncio.sleep(0.02)
        world.report(pod)
    kept = {pod.uid for pod in storm.pods}
    files = SpecFiles(world.cdi)
    await until(lambda: {spec.owner for spec in files.listed()} == kept, 30)
    await until(lambda: len(list((world.state / "slots").glob("[!.]*"))) == len(kept), 30)
    await lives.kill()
    compare(world, storm.pods)


def compare(world: World, pods: list[Pod]) -> None:
    with Ledger(world.state / "ledger.sqlite") as ledger:
        assert violations(ledger._read()) == ()
        assert ledger.overbooked() == {}
        records = {record.slot: record for record in ledger.slots()}
    held = {slot for slot, record in records.items() if not record.releasing}
    assert held == {world.slot(pod) for pod in pods}
    book = Allocations(world.state / "allocations.sqlite")
    rows = {row.name: row for row in book.all()}
    book.close()
    specs = {spec.name: spec.owner for spec in SpecFiles(world.cdi).listed()}
    for pod in pods:
        compare_pod(world, pod, records[world.slot(pod)])
        for row in world.kubelet.devices.held[pod.uid]:
            (name,) = [
                each for each, kept in rows.items() if kept.uid == pod.uid and kept.resource == row.resource
            ]
            assert rows[name].ids == row.ids
            assert name.encode() in row.answer
            assert specs[name] == pod.uid
    assert set(specs.values()) == {pod.uid for pod in pods}


def compare_pod(world: World, pod: Pod, record: SlotRecord) -> None:
    limits = pod.container("main").limits
    assert (record.target.units, record.target.cores) == (limits[MEMORY], limits[CORES])
    assert record.held == record.target
    given = world.given(pod)
    assert given.slot == record.slot
    assert given.cards == {part.card: (part.target.units, part.target.cores) for part in record.slices}
