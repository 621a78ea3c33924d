"""A GPU cluster as Kubernetes objects: every node has eight cards, and pods of a usual mix of sizes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

CARDS = 8
UNITS = 320  # 80 GiB
MIX = ((4, 2), (8, 3), (16, 5), (32, 10), (64, 20), (96, 30), (160, 50), (320, 100))
"""Units of 256 MiB and cores of one slice; the small ones are the common ones."""
WEIGHTS = (30, 22, 16, 12, 9, 6, 3, 2)


def node_name(index: int) -> str:
    """Return a node's name."""
    return f"gpu-node-{index:05d}"


def now() -> str:
    """Return the time of day as a heartbeat."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Cluster:
    """Nodes, their objects, and pods bound to them; the same for the same numbers."""

    def __init__(self, nodes: int, pods: int, pending: int, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._free = [[UNITS, 100] for _ in range(nodes * CARDS)]
        self._slots: list[list[Object]] = [[] for _ in range(nodes)]
        self._promised: list[list[Object]] = [[] for _ in range(nodes)]
        self.pods = [self._bound(index, nodes) for index in range(pods)]
        self.pending = [self._pod(f"pending-{index:06d}", *self._size()) for index in range(pending)]
        self.nodes = [self._node(index) for index in range(nodes)]
        self.gpunodes = [self._gpunode(index) for index in range(nodes)]

    def _size(self) -> tuple[int, int]:
        return self._random.choices(MIX, WEIGHTS)[0]

    def _bound(self, index: int, nodes: int) -> Object:
        units, cores = self._size()
        while True:
            card = self._random.randrange(nodes * CARDS)
            free = self._free[card]
            if free[0] >= units and free[1] >= cores:
                break
            units, cores = MIX[0] if self._random.random() < 0.1 else (units, cores)
        free[0] -= units
        free[1] -= cores
        pod = self._pod(f"bound-{index:06d}", units, cores)
        node, uid = card // CARDS, pod["metadata"]["uid"]
        pod["spec"]["nodeName"] = node_name(node)
        pod["status"]["phase"] = "Running"
        amounts = {"memory": units, "cores": cores}
        uuid = _uuid(node, card % CARDS)
        self._promised[node].append(
            {"uid": uid, "container": "main", "card": uuid, "amounts": amounts, "at": now(),
             "pod": f"default/{pod['metadata']['name']}"}
        )  # fmt: skip
        part = {"card": uuid, "requested": amounts, "granted": amounts, "held": amounts}
        self._slots[node].append(
            {"uid": uid, "container": "main", "state": "Applied", "slices": [part], "maximum": amounts,
             "compute": "hard", "generation": 1, "pod": f"default/{pod['metadata']['name']}"}
        )  # fmt: skip
        return pod

    def _pod(self, name: str, units: int, cores: int) -> Object:
        amounts = {"gaia.io/vgpu-memory": str(units), "gaia.io/vgpu-cores": str(cores)}
        limits = {"cpu": "1", "memory": "2Gi", **amounts}
        env = [{"name": f"E{index}", "value": "x" * 30} for index in range(20)]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"{zlib.crc32(name.encode()):012x}-{name}",
                "annotations": {f"hub.example/note-{index}": "v" * 40 for index in range(10)},
                "managedFields": [{"manager": "hub", "fieldsV1": {f"f:{i}": {}}} for i in range(9)],
            },
            "spec": {
                "schedulerName": "gaia-scheduler",
                "containers": [
                    {"name": "main", "image": "notebook", "env": env,
                     "resources": {"limits": limits, "requests": limits}}
                ],
                "tolerations": [{"key": f"k{index}", "operator": "Exists"} for index in range(4)],
            },
            "status": {"phase": "Pending"},
        }  # fmt: skip

    def _node(self, index: int) -> Object:
        metadata = {"name": node_name(index), "uid": f"node-{index}"}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {}}

    def _gpunode(self, index: int) -> Object:
        uuids = [_uuid(index, card) for card in range(CARDS)]
        cards = [
            {
                "uuid": uuid, "index": card, "model": "NVIDIA A100-SXM4-80GB", "healthy": True,
                "capacity": {"memory": UNITS, "cores": 100},
                "free": {"memory": self._free[index * CARDS + card][0],
                         "cores": self._free[index * CARDS + card][1]},
                "links": [
                    {"card": other, "level": "NVLink", "links": 12} for other in uuids if other != uuid
                ],
            }
            for card, uuid in enumerate(uuids)
        ]  # fmt: skip
        return {
            "apiVersion": "gaia.io/v1alpha1",
            "kind": "GPUNode",
            "metadata": {"name": node_name(index), "uid": f"gpunode-{index}"},
            "spec": {"reservations": self._promised[index]},
            "status": {"ready": True, "heartbeat": now(), "cards": cards, "slots": self._slots[index]},
        }


def _uuid(node: int, card: int) -> str:
    return f"GPU-{node:08x}-0000-0000-0000-{card:012x}"


def objects(cluster: Cluster) -> Iterator[tuple[str, Object]]:
    """Yield each object with the path of its collection."""
    for path, items in (
        ("/api/v1/nodes", cluster.nodes),
        ("/apis/gaia.io/v1alpha1/gpunodes", cluster.gpunodes),
        ("/api/v1/pods", [*cluster.pods, *cluster.pending]),
    ):
        for item in items:
            yield path, item
