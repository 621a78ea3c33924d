"""An extender that runs against an API server at the level of HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gaia_plugin.extender.main import Extender, make_extender, running
from gaia_plugin.extender.settings import ExtenderSettings
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.gpunode import GpuNode
from tests.support.kubeapi import FakeKubeApi, pod_manifest, until
from tests.support.kubeapi.custom import GPUNODES
from tests.unit.extender.worlds import gpunode

MEMORY, CORES = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores"


@pytest.fixture
def kube() -> Iterator[FakeKubeApi]:
    with FakeKubeApi() as server:
        yield server


@pytest.fixture
async def api(kube: FakeKubeApi, tmp_path: Path) -> AsyncIterator[Api]:
    made = await Api.connect(kube.kubeconfig(tmp_path / "kubeconfig"))
    yield made
    await made.close()


@dataclass
class Site:
    """A cluster on the fake API server, and one extender at a time of it."""

    kube: FakeKubeApi
    api: Api
    stack: AsyncExitStack

    async def start(self, **settings: Any) -> Extender:
        """Start an extender and wait until it is synced; it ends with the test, or by `kill`."""
        extender = make_extender(self.api, ExtenderSettings(**settings))
        await self.stack.enter_async_context(running(extender))
        await until(lambda: extender.synced, "synced")
        return extender

    async def kill(self) -> None:
        """End everything that was started."""
        await self.stack.aclose()

    def node(self, name: str, cards: Any, **more: Any) -> dict[str, Any]:
        """Make a Node and its GPUNode, as an agent would have."""
        self.kube.node(name, f"node-{name}")
        item = _wire(gpunode(name, cards, **more))
        item["status"]["heartbeat"] = more.get("heartbeat") or "2999-01-01T00:00:00Z"
        return self.kube.put(item, GPUNODES)

    def pod(self, name: str, units: int, cores: int, **more: Any) -> dict[str, Any]:
        """Make a pod that waits."""
        limits = {MEMORY: str(units), CORES: str(cores)}
        return self.kube.put(pod_manifest(name, limits=limits, uid=name, **{"node": None, **more}))

    def reservations(self, name: str = "n1") -> dict[str, list[tuple[str, int, int]]]:
        """Return what is reserved on a node, by pod."""
        found: dict[str, list[tuple[str, int, int]]] = {}
        for one in (self.kube.gpunode(name) or {}).get("spec", {}).get("reservations", []):
            amounts = one["amounts"]
            found.setdefault(one["uid"], []).append((one["card"], amounts["memory"], amounts["cores"]))
        return found

    def bound_to(self, name: str) -> str | None:
        """Return the node of a pod."""
        found: str | None = self.kube.pod(name)["spec"].get("nodeName")
        return found


def _wire(node: GpuNode) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(msgspec.json.encode(node))
    made["metadata"] = {"name": node.metadata.name, "uid": node.metadata.uid}
    return {"apiVersion": "gaia.io/v1alpha1", "kind": "GPUNode", **made}


@pytest.fixture
async def site(kube: FakeKubeApi, api: Api) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(kube, api, stack)


Ask = Callable[[Extender, str, list[str]], dict[str, Any]]


@pytest.fixture
def filter_pod(site: Site) -> Ask:
    """Return what asks an extender's filter about a pod of the API server."""

    def ask(extender: Extender, pod: str, names: list[str]) -> dict[str, Any]:
        body = {"Pod": site.kube.pod(pod), "Nodes": None, "NodeNames": names}
        answer: dict[str, Any] = json.loads(extender.service.filter(json.dumps(body).encode()))
        return answer

    return ask


async def bind_pod(extender: Extender, pod: str, node: str) -> str:
    """Ask an extender to bind; return the error, empty if there is none."""
    body = {"PodName": pod, "PodNamespace": "default", "PodUID": pod, "Node": node}
    answer: str = json.loads(await extender.service.bind(json.dumps(body).encode()))["Error"]
    return answer
