"""The agent of a node: 8 simulated cards, 64 running pods, a simulated kubelet and API server.

Prints what a call of the kubelet takes over its socket (Allocate; PreStartContainer of a new slot, of its
second resource, and at a container's restart), what the agent takes of memory and of one core at rest, and
how long after SIGKILL the next one has everything again. The agent is a process of its own; kubelet and API
server share this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gaia_plugin.api.start import client_of
from gaia_plugin.errors import Refusal
from gaia_plugin.sim import SimConfig, make_sim
from gaia_plugin.units import GIB, MIB
from tests.kubelet.node_world import CORES, MEMORY, NODE, World
from tests.support.kubeapi import FakeKubeApi
from tests.support.kubelet import Pod, until

CARDS, SLOTS, ROUNDS, REST = 8, 64, 60, 20.0
PROGRAM = (
    "import sys, json; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
    "from gaia_plugin.agent.pods.main import serve_pods;"
    "from gaia_plugin.agent.settings import read_settings;"
    "from tests.support.folders import Folders;"
    "sys.exit(serve_pods(read_settings(**json.loads(sys.argv[1])), mounts=Folders()))"
)


@dataclass
class Times:
    """Seconds of calls of one kind."""

    kind: str
    seconds: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Return a row of the table, in milliseconds."""
        ordered = sorted(self.seconds)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        middle = statistics.median(ordered)
        return (
            f"{self.kind:34}{len(ordered):6d}{middle * 1e3:10.2f}{p99 * 1e3:10.2f}{ordered[-1] * 1e3:10.2f}"
        )


async def start_agent(world: World) -> asyncio.subprocess.Process:
    """Start the agent in a process of its own."""
    settings = {
        "node_name": NODE, "state": str(world.state), "driver": str(world.driver),
        "kubelet_dir": str(world.kubelet.directory), "cdi_dir": str(world.cdi),
        "kubeconfig": str(world.kubeconfig), "check_runtime": False, "metrics_address": "off",
    }  # fmt: skip
    log = (world.place / "agent.log").open("ab")
    with log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, json.dumps(settings), str(Path(__file__).parents[1]), stderr=log,
        )  # fmt: skip


async def prestart(world: World, pod: Pod, resource: str, times: Times) -> None:
    """Make the kubelet's call for one resource of a pod."""
    endpoint = world.kubelet.endpoint(resource)
    assert endpoint is not None
    ids = world.kubelet.ids(pod)[resource]
    begun = time.perf_counter()
    await endpoint.prestart(ids)
    times.seconds.append(time.perf_counter() - begun)


async def calls(world: World) -> list[Times]:
    """Time the kubelet's calls beside `SLOTS` slots."""
    allocate, new = Times("Allocate (16 devices)"), Times("PreStart, new slot")
    second, again = Times("PreStart, its second resource"), Times("PreStart, restart")
    endpoint = world.kubelet.endpoint(MEMORY)
    assert endpoint is not None
    for number in range(500):
        ids = [f"mem-{number + each:05d}" for each in range(16)]
        begun = time.perf_counter()
        await endpoint.allocate(ids)
        allocate.seconds.append(time.perf_counter() - begun)
    for _ in range(ROUNDS):
        pod = Pod.of({MEMORY: 4, CORES: 2})
        world.show(pod)
        assert await world.kubelet.admit(pod)
        await asyncio.sleep(0.05)  # a watch event takes its time; on a real node it has come long before
        for resource, times in ((MEMORY, new), (CORES, second), (MEMORY, again)):
            await prestart(world, pod, resource, times)
        await world.delete(pod)
    return [allocate, new, second, again]


def at_rest(pid: int) -> tuple[float, float]:
    """Return MiB of resident memory, and CPU seconds until now."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return resident * 1024 / MIB, ticks / os.sysconf("SC_CLK_TCK")


async def recovery(world: World) -> tuple[float, asyncio.subprocess.Process]:
    """Return the seconds from a new process to its registration, all slots being served."""
    begun = time.perf_counter()
    agent = await start_agent(world)
    client = client_of(world.state)
    while True:
        try:
            slots = await asyncio.to_thread(client.slots)
            if len(slots) == SLOTS:
                break
        except Refusal:
            pass
        await asyncio.sleep(0.01)
    await world.registered()
    return time.perf_counter() - begun, agent


async def main() -> None:
    """Print the table."""
    place = Path(tempfile.mkdtemp(prefix="gn"))
    with FakeKubeApi() as kube:
        world = World(place, kube)
        shutil.rmtree(world.driver)
        make_sim(world.driver, SimConfig(cards=CARDS, memory=24 * GIB, state=place / "sim-state"))
        async with world.kubelet:
            agent = await start_agent(world)
            try:
                await world.registered()
                await measure(world, agent)
            finally:
                if agent.returncode is None:
                    agent.kill()
                    await agent.wait()
                shutil.rmtree(place)


async def measure(world: World, agent: asyncio.subprocess.Process) -> None:
    """Measure one thing after the other."""
    pods = [Pod.of({MEMORY: 8, CORES: 10}) for _ in range(SLOTS)]
    for pod in pods:
        world.show(pod)
    begun = time.perf_counter()
    await asyncio.gather(*(world.kubelet.run(pod) for pod in pods))
    together = time.perf_counter() - begun
    tries = sum(pod.container("main").tries for pod in pods)
    for pod in pods:
        world.report(pod)
    print(f"{'call':34}{'times':>6}{'p50 ms':>10}{'p99 ms':>10}{'most ms':>10}")
    for times in await calls(world):
        print(times.row())
    print(f"\n{SLOTS} pods at once: {together:.2f} s until all run, {tries - SLOTS} failed PreStarts")
    await until(lambda: len(list((world.state / "slots").glob("[!.]*"))) == SLOTS)
    await asyncio.sleep(5)
    _, before = at_rest(agent.pid)
    await asyncio.sleep(REST)
    resident, after = at_rest(agent.pid)
    print(f"agent at rest, {CARDS} cards, {SLOTS} slots: {resident:.0f} MiB, ", end="")
    print(f"{100 * (after - before) / REST:.1f} % of one core")
    agent.send_signal(signal.SIGKILL)
    await agent.wait()
    seconds, newborn = await recovery(world)
    print(f"after SIGKILL: {seconds:.2f} s until all slots are served and both resources registered")
    newborn.kill()
    await newborn.wait()


if __name__ == "__main__":
    asyncio.run(main())
