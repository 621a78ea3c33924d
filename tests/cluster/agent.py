"""The agent on a node of a test cluster: `gaia agent --kubernetes` of this checkout, on simulated cards."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gaia_plugin.api.client import NodeClient, SlotClient
from gaia_plugin.api.models import Slot
from gaia_plugin.errors import Refusal
from gaia_plugin.sim import SimConfig, make_sim
from gaia_plugin.slots.cdi.files import SpecFiles
from gaia_plugin.slots.names import slot_name
from gaia_plugin.units import GIB, MEMORY_UNIT, MIB
from tests.cluster.build import HERE
from tests.cluster.cluster import Cluster
from tests.cluster.control import INSIDE
from tests.cluster.node import Node
from tests.cluster.pods import Manifest, python_pod
from tests.cluster.polling import until
from tests.cluster.program import Program

MEMORY = "gaia.io/vgpu-memory"
CORES = "gaia.io/vgpu-cores"
NAMESPACE = "gaia-system"
STATE = Path("/var/lib/gaia")
CDI = Path("/run/cdi")  # /var/run leads there, but from out here to the machine's own
GUESTS = HERE / "guests"

CARDS = 4
CARD = SimConfig(cards=CARDS, memory=24 * GIB, reserved=512 * MIB)
UNITS = (CARD.memory - CARD.reserved) // MEMORY_UNIT
"""Of one card."""
_NAMES = """
import json, sqlite3, sys
print(json.dumps(sqlite3.connect(sys.argv[1]).execute("SELECT nonce, uid FROM allocation").fetchall()))
"""

PATIENCE = 120
"""Seconds; the machine may be busy with something else."""


def manifests() -> list[Manifest]:
    """Return what an administrator applies, the DaemonSet last."""
    with (HERE.parents[1] / "deploy/agent.yaml").open() as file:
        return list(yaml.safe_load_all(file))


def allow(cluster: Cluster) -> None:
    """Make the agent's service account with what it may, and the kind of object that it writes."""
    cluster.install_crds()
    for manifest in manifests():
        if manifest["kind"] != "DaemonSet":
            cluster.apply(manifest)


def kubeconfig(cluster: Cluster, node: Node) -> Path:
    """Return a kubeconfig of the agent's service account, bound to the node as a pod's token is."""
    words = ["create", "token", "gaia-agent", "--namespace", NAMESPACE, "--duration=24h"]
    bound = ["--bound-object-kind=Node", f"--bound-object-name={node.name}"]
    token = cluster.kubectl(*words, *bound).strip()
    authority = cluster.control.authority.certificate
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "agent",
        "contexts": [{"name": "agent", "context": {"cluster": "test", "user": "agent"}}],
        "clusters": [
            {"name": "test", "cluster": {"server": INSIDE, "certificate-authority": str(authority)}}
        ],
        "users": [{"name": "agent", "user": {"token": token}}],
    }
    path = cluster.directory / f"agent-{node.name}.kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


@dataclass
class NodeAgent:
    """The agent of a node, with what it has there. `driver` is the simulated driver's directory."""

    cluster: Cluster
    node: Node
    driver: Path
    settings: Mapping[str, str]
    program: Program | None = None

    @classmethod
    def on(cls, cluster: Cluster, node: Node, folder: Path, **settings: str) -> "NodeAgent":
        """Prepare an agent: cards, service account; `settings` are more variables, such as GAIA_DOMAIN."""
        allow(cluster)
        own = {
            "GAIA_NODE_NAME": node.name,
            "GAIA_KUBECONFIG": str(kubeconfig(cluster, node)),
            "GAIA_DRIVER": str(make_sim(folder / "driver", CARD)),
        }
        return cls(cluster, node, folder / "driver", {**own, **settings})

    # -- its life

    def start(self) -> None:
        """Start it and wait until pods may come."""
        mark = self.mark()
        self.launch()
        self.wait_serving(mark)

    def launch(self) -> None:
        """Start it, and wait for nothing."""
        gaia = Path(sys.prefix, "bin/gaia")
        self.program = self.node.popen([gaia, "agent", "--kubernetes"], self.settings, name="agent")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, if it runs."""
        program, self.program = self.program, None
        if program is not None:
            program.stop(how)

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and start it anew."""
        self.stop(how)
        self.start()

    def alive(self) -> bool:
        """Return True; raise RuntimeError with its last lines if it has ended by itself."""
        assert self.program is not None
        return self.program.alive()

    def remove(self) -> None:
        """End it and remove its state and its specs."""
        self.stop()
        self.node.machine.sh(f"umount -R {STATE}/usage/* 2>/dev/null || true; rm -rf {STATE} {CDI}/*")

    # -- waiting

    def mark(self) -> int:
        """Return where its log ends now."""
        log = self.node.machine.logs / f"{self.node.name}-agent.log"
        return log.stat().st_size if log.exists() else 0

    def log(self, mark: int = 0) -> str:
        """Return its log from a mark on."""
        log = self.node.machine.logs / f"{self.node.name}-agent.log"
        return log.read_bytes()[mark:].decode(errors="replace") if log.exists() else ""

    def wait_serving(self, mark: int = 0, units: int = CARDS * UNITS) -> None:
        """Wait until it has registered since the mark, knows what runs, and the node offers its cards.

        What a slot has grown by is not offered.
        """
        self.wait_registered(mark)
        until(
            "it is known what runs", lambda: self.alive() and "it is known what" in self.log(mark), PATIENCE
        )
        self.wait_offered(units)

    def wait_registered(self, mark: int) -> None:
        """Wait until both resources were registered since the mark."""

        def registered() -> bool:
            return self.alive() and self.log(mark).count("registered with the kubelet") >= 2

        until("the agent has registered", registered, PATIENCE)

    def wait_offered(self, units: int = CARDS * UNITS, cores: int = CARDS * 100) -> None:
        """Wait until the node's status offers so much."""
        right = {MEMORY: str(units), CORES: str(cores)}

        def offered() -> bool:
            return {name: self.offered("allocatable").get(name) for name in right} == right

        until(f"the node offers {right}", offered, PATIENCE)

    def offered(self, what: str = "allocatable") -> dict[str, str]:
        """Return the node's `allocatable` or `capacity`."""
        found: dict[str, str] = self.cluster.get(f"/api/v1/nodes/{self.node.name}")["status"][what]
        return found

    # -- what it has

    @property
    def operator(self) -> NodeClient:
        """Its operator socket."""
        return NodeClient(self.node.path(STATE / "operator.sock"))

    def slots(self) -> dict[str, Slot]:
        """Return all slots by name."""
        return {slot.slot: slot for slot in self.operator.slots()}

    def slot(self, pod: Manifest, container: str = "main") -> Slot:
        """Return the slot of a pod's container."""
        return self.operator.slot(slot_name(pod["metadata"]["uid"], container))

    def socket(self, pod: Manifest, container: str = "main") -> SlotClient:
        """Return the socket of a pod's container, on the node's side."""
        slot = slot_name(pod["metadata"]["uid"], container)
        return SlotClient(self.node.path(STATE / "slots" / slot / "agent.sock"))

    def specs(self) -> dict[str, str]:
        """Return the UID that each CDI spec was made for, by the spec's name."""
        directory = self.node.path(CDI)
        return {spec.name: spec.owner for spec in SpecFiles(directory).listed()} if directory.exists() else {}

    def directories(self) -> set[str]:
        """Return the slots that have a directory."""
        return {path.name for path in self.node.path(STATE / "slots").glob("[!.]*")}

    def mounts(self) -> int:
        """Return how many usage pages are mounted on the node."""
        table = Path(f"/proc/{self.node.machine.pid}/mountinfo").read_text()
        return sum(f" {STATE}/usage/" in line for line in table.splitlines())

    def names(self) -> dict[str, str]:
        """Return the UID of each name that was answered to an Allocate and is remembered."""
        # on the node: SQLite follows links, and the way there from out here is one
        told = self.node.exec([sys.executable, "-I", "-c", _NAMES, STATE / "allocations.sqlite"])
        return dict(json.loads(told))

    def wait_empty(self) -> None:
        """Wait until nothing of any pod is left: no slot, page, mount, spec or name."""

        def left() -> dict[str, Any]:
            return {
                "slots": sorted(self.slots()),
                "directories": sorted(self.directories()),
                "mounts": self.mounts(),
                "specs": sorted(self.specs()),
            }

        try:
            until("the node's ledger is empty", lambda: not any(left().values()), 60)
            until("no name is anybody's", lambda: not any(self.names().values()), 30, every=0.5)
        except TimeoutError as late:
            raise AssertionError(f"{late}; left: {left()}\n{self.log()[-3000:]}") from None

    def reachable(self) -> bool:
        """Return whether it answers on its operator socket."""
        try:
            return bool(self.operator.health())
        except Refusal:
            return False


def sliced_pod(
    name: str,
    code: str,
    units: int | None = 4,
    cores: int | None = 10,
    annotations: Mapping[str, str] | None = None,
    mounts: Sequence[Path] = (),
    **spec: Any,
) -> Manifest:
    """Return a pod with a slice that runs `code` after `from tenant import *`; `spec` is more of its spec."""
    resources = {
        resource: amount for resource, amount in ((MEMORY, units), (CORES, cores)) if amount is not None
    }
    program = f"from tenant import *\n{code}"
    pod = python_pod(name, program, resources, env={"PYTHONPATH": str(GUESTS)}, mounts=[GUESTS, *mounts])
    pod["metadata"]["annotations"] = dict(annotations or {})
    own = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    pod["spec"]["containers"][0]["env"].append(own)
    pod["spec"].update(spec)
    return pod


def create(cluster: Cluster, pods: Sequence[Manifest]) -> None:
    """Create pods, as fast as the API server takes them."""
    for pod in pods:
        cluster.control.send("POST", "/api/v1/namespaces/default/pods", pod)


def said(cluster: Cluster, pod: str) -> list[dict[str, Any]]:
    """Return what a pod's program has said, line by line."""
    text = cluster.control.text(f"/api/v1/namespaces/default/pods/{pod}/log")
    return [json.loads(line) for line in text.splitlines()]


def has_its_own(pod: Manifest, words: Mapping[str, Any]) -> bool:
    """Return whether a pod's `identity()` is that of its own slot, in the size of its spec."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    size = int(limits[MEMORY]) * MEMORY_UNIT
    uid = pod["metadata"]["uid"]
    return (
        (words["uid"], words["owner"], words["total"]) == (uid, uid, size)
        and words["granted"] == [size, int(limits[CORES])]
        and words["cards"] == words["booked"]
    )


def status(pod: Manifest, container: str = "main") -> dict[str, Any]:
    """Return the status of a pod's container, {} if there is none yet."""
    told = pod["status"]
    found = [*told.get("initContainerStatuses", ()), *told.get("containerStatuses", ())]
    return next((each for each in found if each["name"] == container), {})
