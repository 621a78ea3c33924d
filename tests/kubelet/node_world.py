"""A node in one process: the pod agent, the simulated kubelet and an API server, on played cards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaia_plugin.agent import loops
from gaia_plugin.agent.pods.advertised import Lists
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.kubelet import KubeletCheckpoint
from gaia_plugin.agent.pods.machine import Machine
from gaia_plugin.agent.pods.main import Updater, open_ledger
from gaia_plugin.agent.pods.node import PodNode
from gaia_plugin.agent.pods.server import NodeServer
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.agent.pods.specs import SlotSpecs
from gaia_plugin.agent.readings import Reader, inventory
from gaia_plugin.deviceplugin.plugin import Plugin
from gaia_plugin.deviceplugin.registration import keep_registered
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu import Card, Topology, Use
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.pods import Pod as SeenPod
from gaia_plugin.kube.pods import Pods
from gaia_plugin.kube.reflector import Backoff, Reflector
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.ledger.allocations import Allocations
from gaia_plugin.metrics.tally import Tally
from gaia_plugin.slots import pages
from gaia_plugin.slots.cdi.driver import CUDA, NVML, DriverEdits, Private, covering
from gaia_plugin.slots.cdi.files import SpecFiles
from gaia_plugin.slots.cdi.model import ContainerEdits, DeviceNode
from gaia_plugin.slots.container import ContainerDirectories
from gaia_plugin.slots.limits import share_of
from gaia_plugin.slots.members import Members
from gaia_plugin.slots.names import slot_name
from gaia_plugin.units import MIB
from tests.support.folders import Folders
from tests.support.kubeapi import FakeKubeApi
from tests.support.kubelet import Pod, SimulatedKubelet, until

MEMORY, CORES = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores"
NODE = "node1"
MACHINE = Machine(Machine.here(Path("/")).boot, "")  # agents of their own process look for themselves
PLACEMENT = "gaia.io/placement"


def uuid_of(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


@dataclass
class Cards:
    """Cards of a machine; what is used on them is what a test says."""

    sizes: list[int] = field(default_factory=lambda: [16384])
    sick: set[int] = field(default_factory=set)
    held: dict[str, dict[int, int | None]] = field(default_factory=dict)

    def cards(self) -> tuple[Card, ...]:
        return tuple(
            Card(
                uuid_of(index), index, "Played", size * MIB, 0, f"0000:{index:02x}:00.0", 0,
                index not in self.sick, "it was lost" if index in self.sick else "",
            )
            for index, size in enumerate(self.sizes)
        )  # fmt: skip

    def topology(self) -> Topology:
        return Topology()

    def memory_used(self, uuid: str) -> int:
        return 0

    def processes(self, uuid: str) -> dict[int, int | None]:
        return dict(self.held.get(uuid, {}))

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        raise Refusal(Code.UNAVAILABLE, "Not Supported.")


class NoMembers:
    def host_pid(self, slot: str, pid: int, start: int) -> int | None:
        return None

    def contains(self, slot: str, pid: int) -> bool:
        return False


@dataclass
class PlayedDriver:
    """What containers need of a driver that is two files."""

    directory: Path

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        nodes = tuple(DeviceNode(f"/dev/nvidia{int(card[-12:])}") for card in cards)
        private = tuple(Private(name, str(self.directory / name)) for name in (CUDA, NVML))
        covered = covering({CUDA: "1.2", NVML: "1.2"}, ["/usr/lib64"])
        return DriverEdits(ContainerEdits(device_nodes=nodes), private, covered)


@dataclass
class Agent:
    """One life of the agent: `start`, then `stop`, or `kill` as SIGKILL would."""

    world: World
    node: PodNode
    core: PodCore
    api: Api
    reflector: Reflector[SeenPod]
    plugins: tuple[Plugin, Plugin]
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor]
    lists: Lists | None = None
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @classmethod
    async def start(cls, world: World) -> Agent:
        directories = ContainerDirectories(
            world.state, world.shadows, context_bytes=300 * MIB, members=world.members, mounts=world.mounts
        )
        core = PodCore(
            world.state,
            world.driver,
            inventory(world.cards),
            open_ledger(world.state / "ledger.sqlite"),
            directories,
            300 * MIB,
            allocations=Allocations(world.state / "allocations.sqlite", world.clock),
            specs=SlotSpecs(SpecFiles(world.cdi), directories, PlayedDriver(world.driver)),
            node_name=NODE,
            domain="gaia.io",
        )
        api = await Api.connect(world.kubeconfig)
        server = NodeServer(api, NODE, "gaia.io", world.tally)
        reflector: Reflector[SeenPod] = Reflector(
            api, Pods(), field_selector=server.selector, backoff=Backoff(first=0.02, most=0.2)
        )
        threads = ThreadPoolExecutor(1, "core"), ThreadPoolExecutor(1, "driver")
        node = PodNode(
            core, Reader(world.cards, directories.members), *threads, sight=Sight(reflector),
            checkpoint=KubeletCheckpoint(world.kubelet.directory), server=server, clock=world.clock,
            machine=world.machine, meter=world.tally, evict_unmanaged=world.evict_unmanaged, api=api,
        )  # fmt: skip
        plugins = (
            Plugin(MEMORY, world.kubelet.directory, node),
            Plugin(CORES, world.kubelet.directory, node),
        )
        agent = cls(world, node, core, api, reflector, plugins, threads)
        node.on_devices = Updater(*plugins)
        await node.open()
        repeat = loops.repeat
        agent.tasks = [
            asyncio.create_task(each)
            for each in (
                reflector.run(),
                keep_registered(plugins, world.kubelet.directory, poll=0.02),
                repeat("drain", 0.02, node.drain_all),
                repeat("share", 0.5, lambda: loops.share(node)),
                repeat("observe", 0.5, lambda: loops.observe(node)),
                repeat("reconcile", 0.05, node.reconcile),
                repeat("sweep", 0.05, node.sweep_once),
                repeat("publish", 0.0, node.publish_once),
                repeat("desire", 0.02, node.desire_once),
                node.write_object(),
            )
        ]
        return agent

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.node.close()
        for thread in self.threads:
            await asyncio.to_thread(thread.shutdown)
        self.core.close()
        await self.api.close()

    async def sync(self) -> None:
        """Look at the cards now."""
        await loops.sync(self.node)
        self.node.advertise()


@dataclass
class World:
    """All of a node. `place` is short, for sockets lie in it."""

    place: Path
    kube: FakeKubeApi
    cards: Cards = field(default_factory=Cards)
    seed: int = 7
    ahead: float = 0.0
    """Seconds by which the agent's clock has jumped."""
    mounts: Folders = field(default_factory=Folders)
    machine: Machine = MACHINE
    members: Members = field(default_factory=NoMembers)
    tally: Tally = field(default_factory=Tally)
    evict_unmanaged: bool = False
    agent_: Agent | None = None

    def __post_init__(self) -> None:
        self.state, self.cdi = self.place / "state", self.place / "cdi"
        self.driver, self.shadows = self.place / "driver", self.place / "shadows"
        for directory in (self.state, self.cdi, self.driver, self.shadows):
            directory.mkdir(exist_ok=True)
        for directory in (self.driver, self.shadows):
            for name in (CUDA, NVML):
                (directory / name).write_bytes(b"stand-in")
        self.kubelet = SimulatedKubelet(self.place / "kubelet", self.cdi, seed=self.seed)
        self.kubeconfig = self.kube.kubeconfig(self.place / "kubeconfig")
        self.report_node()

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    @property
    def agent(self) -> Agent:
        assert self.agent_ is not None
        return self.agent_

    async def start(self) -> None:
        """Start the agent and wait until the kubelet has it registered."""
        self.agent_ = await Agent.start(self)
        for endpoint in self.kubelet.devices.endpoints.values():
            await until(lambda endpoint=endpoint: endpoint.stopped or endpoint.healthy)
        await self.registered()

    def report_node(self, boot: str = MACHINE.boot, machine: str = MACHINE.identity) -> None:
        """Report the node's status, as its kubelet does."""
        info = {"bootID": boot, "machineID": machine, "containerRuntimeVersion": "containerd://2.0.0"}
        metadata = {"name": NODE, "uid": f"uid-of-{NODE}"}
        self.kube.put({"metadata": metadata, "status": {"nodeInfo": info}}, "v1/nodes")

    async def registered(self) -> None:
        await self.kubelet.registered(MEMORY, CORES)

    async def stop(self) -> None:
        agent, self.agent_ = self.agent_, None
        if agent is not None:
            await agent.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    # -- pods

    def show(self, pod: Pod) -> None:
        """Let the API server have a new pod."""
        self.kube.put(pod.as_api(NODE))

    def report(self, pod: Pod) -> None:
        """Report a pod's status, as its kubelet does."""
        if pod in self.kubelet.pods:
            self.kube.change(pod.name, {"status": pod.as_api(NODE)["status"]}, pod.namespace)

    async def run(self, pod: Pod) -> Pod:
        """Bring a pod from nothing to running."""
        self.show(pod)
        await self.kubelet.run(pod)
        self.report(pod)
        return pod

    async def delete(self, pod: Pod) -> None:
        """Delete a pod in order: its containers end, then it is gone."""
        await self.kubelet.delete(pod)
        self.kube.remove(pod.name, pod.namespace)

    async def force_delete(self, pod: Pod) -> None:
        """Delete a pod with a grace of 0: its containers may still run."""
        await self.kubelet.force_delete(pod)
        self.kube.remove(pod.name, pod.namespace)

    # -- what is true

    def slot(self, pod: Pod, container: str = "main") -> str:
        return slot_name(pod.uid, container)

    def records(self) -> dict[str, SlotRecord]:
        return {record.slot: record for record in self.agent.core.ledger.slots()}

    def given(self, pod: Pod, container: str = "main") -> Given:
        """What the container was created with, read where its mounts lead."""
        edits = pod.container(container).edits
        assert edits is not None, f"{pod.name} has not run"
        numbers = pages.layout()
        granted = {}
        directory = Path(edits.mounts["/run/gaia"].source)
        cards = edits.env["CUDA_VISIBLE_DEVICES"].split(",")
        with pages.LimitsPage(directory / "limits") as page:
            assert page.load(numbers["limits.card_count"]) == len(cards)
            for index, card in enumerate(cards):
                base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
                share = share_of(
                    page.load(base + numbers["limits.card.memory_limit"]),
                    page.load(base + numbers["limits.card.guarantee_ppm"]),
                )
                granted[card] = (share.units, share.cores)
        return Given(directory.name, granted)

    def check(self, pods: Sequence[Pod]) -> None:
        """Each running container has its own slot, of its own size, and the cards are not overbooked."""
        for pod in pods:
            for container in pod.containers:
                if container.running:
                    given = self.given(pod, container.name)
                    assert given.slot == self.slot(pod, container.name)
                    units = sum(units for units, _ in given.cards.values())
                    if MEMORY in container.limits:
                        assert units == container.limits[MEMORY], (pod.name, given)
        assert self.agent.core.ledger.overbooked() == {}

    async def empty(self) -> None:
        """Wait until nothing of any pod is left."""
        await until(lambda: not self.records())
        self.ahead += 601.0
        await self.agent.node.tidy_once()
        await until(lambda: not self.agent.core.allocations.all())
        await until(lambda: not list(self.cdi.iterdir()))
        await until(lambda: self.agent.core.directories.slots() == [])


@dataclass(frozen=True)
class Given:
    """A slot, and units and cores by card."""

    slot: str
    cards: dict[str, tuple[int, int]]


async def gather(*work: Any) -> list[Any]:
    """Run all at once; the first fault ends the test, with the others cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
    return [task.result() for task in tasks]
