"""kube-scheduler with Gaia's extender on a test cluster, and what tests ask about what they decided."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from gaia_plugin.kube import gpunode
from gaia_plugin.kube.placement import Placement, parse, placement_key
from tests.cluster.build import HERE
from tests.cluster.cluster import Cluster
from tests.cluster.configs import write
from tests.cluster.control import INSIDE
from tests.cluster.pods import Manifest
from tests.cluster.polling import until
from tests.cluster.program import Program

MEMORY, CORES = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores"
NAMESPACE = "gaia-system"
PATIENCE = 120
GAIA = Path(sys.prefix, "bin/gaia")


def manifests() -> list[Manifest]:
    """Return what an administrator applies."""
    with (HERE.parents[1] / "deploy/scheduler.yaml").open() as file:
        return list(yaml.safe_load_all(file))


class Scheduler:
    """kube-scheduler and extender as the Deployment runs them, on the control plane's machine."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.machine = cluster.control.machine
        self.extender: Program | None = None
        self.scheduler: Program | None = None
        cluster.install_crds()
        for manifest in manifests():
            if manifest["kind"] != "Deployment":
                cluster.apply(manifest)
        self.kubeconfig = self._kubeconfig()
        (config,) = (each for each in manifests() if each["kind"] == "ConfigMap")
        told = yaml.safe_load(config["data"]["scheduler.yaml"])
        told["clientConnection"] = {"kubeconfig": str(self.kubeconfig)}
        self.config = write(cluster.directory / "gaia-scheduler.yaml", told)

    def _kubeconfig(self) -> Path:
        words = ["create", "token", "gaia-scheduler", "--namespace", NAMESPACE, "--duration=24h"]
        token = self.cluster.kubectl(*words).strip()
        authority = str(self.cluster.control.authority.certificate)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "gaia",
            "contexts": [{"name": "gaia", "context": {"cluster": "test", "user": "gaia"}}],
            "clusters": [{"name": "test", "cluster": {"server": INSIDE, "certificate-authority": authority}}],
            "users": [{"name": "gaia", "user": {"token": token}}],
        }
        path = write(self.cluster.directory / "gaia-scheduler.kubeconfig", config)
        path.chmod(0o600)
        return path

    def start_extender(self) -> None:
        """Start the extender and wait until it has read the cluster."""
        settings = {"GAIA_KUBECONFIG": str(self.kubeconfig), "GAIA_STALE_SECONDS": "3600"}
        self.extender = self.machine.popen([GAIA, "extender"], settings, name="extender")
        until("the extender is ready", self._ready, PATIENCE, every=0.5)

    def _ready(self) -> bool:
        assert self.extender is not None
        self.extender.alive()
        try:
            self.machine.exec([GAIA, "extender", "--check"])
        except RuntimeError:
            return False
        return True

    def start_scheduler(self) -> None:
        """Start kube-scheduler, beside the cluster's own."""
        own = str(self.kubeconfig)
        flags = [
            f"--config={self.config}",
            f"--authentication-kubeconfig={own}",
            f"--authorization-kubeconfig={own}",
            "--secure-port=10269",
            "--bind-address=127.0.0.1",
            "--cert-dir=/tmp",
            "--v=3",
        ]
        self.scheduler = self.machine.popen(["kube-scheduler", *flags], name="gaia-scheduler")

    def alive(self) -> bool:
        """Return True; raise RuntimeError with its last lines if one of both has ended."""
        assert self.extender is not None
        assert self.scheduler is not None
        return self.extender.alive() and self.scheduler.alive()

    def end(self) -> None:
        """End both."""
        for program in (self.scheduler, self.extender):
            if program is not None and program.poll() is None:
                program.stop()


Card = tuple[str, str]
"""Node and UUID: simulated cards of two nodes have the same UUIDs."""


def reserved(cluster: Cluster) -> dict[Card, dict[str, tuple[int, int]]]:
    """Return what is reserved on each card, by UID; raise if that is more than a card has."""
    found: dict[Card, dict[str, tuple[int, int]]] = {}
    for node in cluster.get(gpunode.path())["items"]:
        name, cards = node["metadata"]["name"], node.get("status", {}).get("cards", [])
        for one in node.get("spec", {}).get("reservations", []):
            amounts = (one["amounts"]["memory"], one["amounts"]["cores"])
            found.setdefault((name, one["card"]), {})[one["uid"]] = amounts
        for card in cards:
            parts = found.get((name, card["uuid"]), {}).values()
            units, cores = (sum(part[at] for part in parts) for at in (0, 1))
            assert units <= card["capacity"]["memory"], f"{card['uuid']} is given twice"
            assert cores <= card["capacity"]["cores"], f"{card['uuid']} is given twice"
    return found


def node_of(cluster: Cluster, name: str) -> str | None:
    """Return the node that a pod is bound to."""
    found: str | None = cluster.pod(name)["spec"].get("nodeName")
    return found


def wait_bound(cluster: Cluster, scheduler: Scheduler, *names: str) -> None:
    """Wait until pods are bound; no card may be given twice meanwhile."""
    for name in names:
        until(
            f"{name} is bound\n{cluster.describe(name)}",
            lambda name=name: scheduler.alive() and reserved(cluster) is not None and node_of(cluster, name),
            PATIENCE,
        )


def check_placed(cluster: Cluster, name: str) -> list[Card]:
    """Return the cards of a pod; its annotation, its node and its reservation must agree."""
    pod = cluster.pod(name)
    placed = parse(pod["metadata"]["annotations"][placement_key()])
    assert isinstance(placed, Placement)
    assert (placed.uid, placed.node) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])
    cards = {(placed.node, part.card): part.share for part in placed.containers["main"]}
    for card, share in cards.items():
        assert reserved(cluster)[card][placed.uid] == (share.units, share.cores)
    return list(cards)


def why_pending(cluster: Cluster, name: str) -> str:
    """Return what the scheduler last said of a pod."""
    conditions = cluster.pod(name)["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")
