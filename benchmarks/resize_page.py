"""How long a resize takes from a slot's socket to its limits page, beside 64 slots.

Once on a machine without Kubernetes, once on a node whose agent writes its GPUNode to an API server (that of
the tests, in this process) before a grow is in force; with `--cluster` also on a node of a real Kubernetes,
as the tests start it. The agent is a process of its own. Sends a PATCH over
one slot's socket after the other, each over a connection of its own, and looks at the page until it has the
new limit; prints p50, p99 and the largest of that, and of the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import http.client
import json
import os
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.node import start_agent
from gaia_plugin import paths
from gaia_plugin.api import models, sockets
from gaia_plugin.api.client import NodeClient
from gaia_plugin.api.start import agent_environment, answers
from gaia_plugin.sim import SimConfig, make_sim
from gaia_plugin.slots import pages
from gaia_plugin.units import GIB, MEMORY_UNIT
from tests.kubelet.node_world import CORES, MEMORY, World
from tests.support.kubeapi import FakeKubeApi, custom
from tests.support.kubelet import Pod, until

CARDS, SLOTS, UNITS = 8, 64, 8
PATIENCE = 20.0
LOOK = 0.0002  # seconds: the agent and the API server need the processors more than this program


class Slot:
    """One slot: its socket, and the word of its page that is its memory limit."""

    def __init__(self, directory: Path) -> None:
        numbers = pages.layout()
        self._word = numbers["limits.card"] + numbers["limits.card.memory_limit"]
        self._page = os.open(directory / "limits", os.O_RDONLY)
        self._socket = directory / paths.SLOT_SOCKET

    def limit(self) -> int:
        """Return the limit in force, in bytes."""
        (word,) = struct.unpack("=Q", os.pread(self._page, 8, self._word))
        return int(word)

    def resize(self, units: int) -> tuple[float, float]:
        """Resize; return the seconds until the page had it, and until the answer."""
        before = self.limit()
        body = json.dumps({"memory": units * MEMORY_UNIT})
        begun = time.perf_counter()
        connection = http.client.HTTPConnection("gaia", timeout=PATIENCE)
        wire = connection.sock = sockets.connect(self._socket, PATIENCE)
        connection.request("PATCH", "/v1/slot", body)
        while self.limit() == before:
            if select.select([wire], [], [], LOOK)[0] and self.limit() == before:
                raise SystemExit(f"refused: {connection.getresponse().read().decode()}")
        stored = time.perf_counter() - begun
        answer = connection.getresponse()
        answer.read()
        answered = time.perf_counter() - begun
        connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise SystemExit(f"refused with {answer.status}")
        return stored, answered

    def close(self) -> None:
        """Let go of the page."""
        os.close(self._page)


def measure(directories: Sequence[Path], rounds: int, size: int = UNITS) -> Iterator[tuple[str, list[float]]]:
    """Grow and shrink every slot `rounds` times, in turn; yield seconds by what was measured."""
    slots = [Slot(directory) for directory in directories]
    found: dict[str, list[float]] = {"grow": [], "grow, answer": [], "shrink": [], "shrink, answer": []}
    pause = 2 / 5 / len(slots)  # a slot takes five resizes a second, and has two in each round
    for _ in range(rounds):
        for slot in slots:
            for what, units in (("grow", size + 1), ("shrink", size)):
                stored, answered = slot.resize(units)
                found[what].append(stored)
                found[f"{what}, answer"].append(answered)
            time.sleep(pause)
    for slot in slots:
        slot.close()
    yield from found.items()


def table(heading: str, found: Iterator[tuple[str, list[float]]]) -> None:
    """Print milliseconds."""
    print(f"\n{heading:34}{'times':>6}{'p50 ms':>10}{'p99 ms':>10}{'most ms':>10}")
    for what, seconds in found:
        p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
        middle = statistics.median(seconds)
        print(f"{what:34}{len(seconds):6d}{middle * 1e3:10.2f}{p99 * 1e3:10.2f}{max(seconds) * 1e3:10.2f}")


@contextmanager
def machine(place: Path) -> Iterator[NodeClient]:
    """Run an agent of a single machine with `CARDS` simulated cards."""
    driver = make_sim(place / "driver", SimConfig(cards=CARDS, memory=24 * GIB, state=place / "sim"))
    state = place / "state"
    command = [sys.executable, "-m", "gaia_plugin.agent", "--state", str(state), "--driver", str(driver)]
    environ = {**agent_environment(os.environ), "GAIA_STATE": str(place)}
    with (place / "agent.log").open("ab") as log:
        agent = subprocess.Popen(command, env=environ, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE
        while not answers(state):
            if agent.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((place / "agent.log").read_text())
            time.sleep(0.05)
        yield NodeClient(paths.operator_socket(state))
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(PATIENCE)


def single(rounds: int) -> None:
    """Measure without Kubernetes."""
    place = Path(tempfile.mkdtemp(prefix="gr"))
    try:
        with machine(place) as client:
            wishes = [
                models.NewSlot(
                    owner=f"user{number}", memory=UNITS * MEMORY_UNIT, cores=10, process=os.getpid()
                )
                for number in range(SLOTS)
            ]
            made = [client.make(wish) for wish in wishes]
            table("without Kubernetes", measure([Path(each.directory) for each in made], rounds))
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def node(rounds: int) -> None:
    """Measure on a node of a cluster."""
    place = Path(tempfile.mkdtemp(prefix="gr"))
    # checks against the schema in Python take 100 ms here, and a real server next to nothing
    custom._checked = lambda name, item: copy.deepcopy(item)
    with FakeKubeApi() as kube:
        world = World(place, kube)
        shutil.rmtree(world.driver)
        make_sim(world.driver, SimConfig(cards=CARDS, memory=24 * GIB, state=place / "sim"))
        async with world.kubelet:
            agent = await start_agent(world)
            try:
                await world.registered()
                most = {"gaia.io/vgpu-max-memory": str(2 * UNITS)}
                pods = [Pod.of({MEMORY: UNITS, CORES: 10}, annotations=most) for _ in range(SLOTS)]
                for pod in pods:
                    world.show(pod)
                await asyncio.gather(*(world.kubelet.run(pod) for pod in pods))
                for pod in pods:
                    world.report(pod)
                await until(lambda: len(list((world.state / "slots").glob("[!.]*"))) == SLOTS)
                directories = [world.state / "slots" / world.slot(pod) for pod in pods]
                found = await asyncio.to_thread(lambda: list(measure(directories, rounds)))
                table("with the write of the GPUNode", iter(found))
            finally:
                if agent.returncode is None:
                    agent.kill()
                    await agent.wait()
                shutil.rmtree(place, ignore_errors=True)


def cluster(rounds: int) -> None:
    """Measure on a node of a real Kubernetes, which runs 64 pods."""
    # only here: they want what CONTRIBUTING.md says of a real Kubernetes
    from tests.cluster import agent as agents
    from tests.cluster.cluster import Cluster
    from tests.cluster.pods import busybox_pod
    from tests.cluster.polling import until as reached

    folder = Path(tempfile.mkdtemp(prefix="gr"))
    with Cluster() as running:
        node = agents.NodeAgent.on(running, running.nodes[0], folder)
        try:
            node.start()
            pods = [
                busybox_pod(f"p{each}", "sleep 3600", {MEMORY: 4, CORES: 5}, node.node.name)
                for each in range(SLOTS)
            ]
            for pod in pods:
                pod["metadata"]["annotations"] = {"gaia.io/vgpu-max-memory": "8"}
            agents.create(running, pods)
            reached(
                "all pods run",
                lambda: node.alive() and sum(s.state == "applied" for s in node.slots().values()) == SLOTS,
                600,
                every=1,
            )
            reached("all are started", lambda: len(running.pods_running()) == SLOTS, 600, every=1)
            slots = [node.node.path(agents.STATE / "slots" / slot) for slot in node.slots()]
            table("on a real Kubernetes", measure(slots, rounds, 4))
        finally:
            running.delete_pods()
            node.remove()
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="grows and shrinks of each slot")
    parser.add_argument("--cluster", action="store_true", help="also on a real Kubernetes")
    told = parser.parse_args()
    rounds = told.rounds
    print(f"{SLOTS} slots on {CARDS} simulated cards, from the slot's socket to its page")
    single(rounds)
    asyncio.run(node(rounds))
    if told.cluster:
        cluster(rounds)


if __name__ == "__main__":
    main()
