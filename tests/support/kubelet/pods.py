"""Pods and containers as the simulated kubelet keeps them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.support.kubelet.cdi import Edits

_numbers = itertools.count(1)


class Kind(StrEnum):
    APP = "app"
    SIDECAR = "sidecar"
    """A native one: an init container that is restarted always."""
    INIT = "init"
    """A plain init container: runs to its end before the others start."""


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass
class Container:
    """One container; `reason` and `message` are what `kubectl describe` would show while it waits."""

    name: str
    limits: dict[str, int]
    kind: Kind = Kind.APP
    state: State = State.WAITING
    reason: str = "ContainerCreating"
    message: str = ""
    edits: Edits | None = None
    """What the container was created with; None before it has run."""
    cdi_names: tuple[str, ...] = ()
    restarts: int = 0
    tries: int = 0
    """Starts that were tried, restarts and failures included."""
    id: str = ""

    @property
    def running(self) -> bool:
        return self.state is State.RUNNING


@dataclass(eq=False)
class Pod:
    """A pod bound to the node: `Pod.of({"gaia.io/vgpu-memory": 16})`, or with containers of its own."""

    containers: list[Container]
    name: str = ""
    namespace: str = "default"
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    annotations: dict[str, str] = field(default_factory=dict)
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    deleted: bool = False
    """The API has a deletion timestamp on it."""

    def __post_init__(self) -> None:
        self.name = self.name or f"pod-{next(_numbers)}"

    @classmethod
    def of(cls, limits: Mapping[str, int], name: str = "", **more: Any) -> Pod:
        """A pod with one container, `main`, that asks for `limits`."""
        return cls([Container("main", dict(limits))], name, **more)

    def again(self, limits: Mapping[str, int] | None = None) -> Pod:
        """Another pod of the same name and namespace: only the UID differs, and the size if given."""
        return Pod(
            [Container(each.name, dict(limits or each.limits), each.kind) for each in self.containers],
            self.name,
            self.namespace,
            annotations=dict(self.annotations),
        )

    def container(self, name: str) -> Container:
        return next(each for each in self.containers if each.name == name)

    @property
    def running(self) -> bool:
        """Every container that should be running is."""
        return all(each.running or each.kind is Kind.INIT for each in self.containers)

    @property
    def ended(self) -> bool:
        return self.phase in ("Failed", "Succeeded")

    def in_order(self, *kinds: Kind) -> list[Container]:
        return [each for each in self.containers if each.kind in kinds]

    def as_api(self, node: str = "node1", resource_version: int = 1) -> dict[str, Any]:
        """The pod as the API server would have it, as far as anybody here reads it."""
        metadata: dict[str, Any] = {
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": str(resource_version),
            "annotations": dict(self.annotations),
        }
        if self.deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "nodeName": node,
                "initContainers": [_spec(each) for each in self.in_order(Kind.INIT, Kind.SIDECAR)],
                "containers": [_spec(each) for each in self.in_order(Kind.APP)],
            },
            "status": {
                "phase": self.phase,
                "reason": self.reason,
                "message": self.message,
                "initContainerStatuses": [_status(each) for each in self.in_order(Kind.INIT, Kind.SIDECAR)],
                "containerStatuses": [_status(each) for each in self.in_order(Kind.APP)],
            },
        }


def _spec(container: Container) -> dict[str, Any]:
    quantities = {resource: str(amount) for resource, amount in container.limits.items()}
    spec: dict[str, Any] = {
        "name": container.name,
        "resources": {"limits": quantities, "requests": dict(quantities)},
    }
    if container.kind is Kind.SIDECAR:
        spec["restartPolicy"] = "Always"
    return spec


def _status(container: Container) -> dict[str, Any]:
    states: dict[State, dict[str, Any]] = {
        State.WAITING: {"waiting": {"reason": container.reason, "message": container.message}},
        State.RUNNING: {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        State.ENDED: {"terminated": {"exitCode": 0, "reason": "Completed"}},
    }
    return {
        "name": container.name,
        "containerID": f"containerd://{container.id}" if container.id else "",
        "restartCount": container.restarts,
        "started": container.running,
        "ready": container.running,
        "state": states[container.state],
    }
