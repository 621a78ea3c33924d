"""Pods, as far as Gaia reads them, and when what they hold is free again.

Decoding takes a fraction of what the Kubernetes client's objects take because only these fields are
kept; `Pods` then drops the resources and annotations of others, which are most of a pod's bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.quantities import NotWhole, whole_number

DOMAIN: Final = "gaia.io"
CONFIG_HASH: Final = "kubernetes.io/config.hash"
"""Annotation of a static pod's mirror: the UID by which its kubelet knows it."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Quantities as written; `whole_number` reads them."""

    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container or init container of a pod's specification."""

    name: str
    resources: Resources | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[object, ...] | None = None

    @property
    def limits(self) -> Mapping[str, str]:
        """Return the limits as written; empty if there are none."""
        return (self.resources.limits if self.resources else None) or _NOTHING

    @property
    def requests(self) -> Mapping[str, str]:
        """Return the requests as written; empty if there are none."""
        return (self.resources.requests if self.resources else None) or _NOTHING


class Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A pod's specification."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    node_name: str | None = None
    restart_policy: str = "Always"


class Running(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container that runs."""

    started_at: str | None = None


class Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A container that has ended; it may be started again."""

    exit_code: int = 0
    reason: str | None = None


class State(msgspec.Struct, frozen=True, gc=False):
    """What a container does now; neither: it waits."""

    running: Running | None = None
    terminated: Terminated | None = None


_WAITING: Final = State()


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What the kubelet last said about a container. `container_id` is ``containerd://<id>``."""

    name: str
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: State | None = None
    started: bool | None = None


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What the kubelet last said about a pod."""

    phase: str = "Pending"
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


_UNKNOWN: Final = PodStatus()


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod. The UID is its identity: a name may come back with another UID."""

    metadata: Metadata
    spec: Spec = Spec()
    status: PodStatus = _UNKNOWN

    @property
    def uid(self) -> str:
        """Return the UID."""
        return self.metadata.uid

    @property
    def title(self) -> str:
        """Return ``namespace/name``, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the annotations that were kept; empty if there are none."""
        return self.metadata.annotations or _NOTHING

    @property
    def terminating(self) -> bool:
        """Tell whether somebody has asked for its deletion."""
        return self.metadata.deleted is not None

    @property
    def terminal(self) -> bool:
        """Tell whether it will never run again."""
        return self.status.phase in ("Succeeded", "Failed")

    def container(self, name: str) -> Container | None:
        """Return the container or init container of this name."""
        both = (*(self.spec.containers or ()), *(self.spec.init_containers or ()))
        return next((each for each in both if each.name == name), None)

    def container_status(self, name: str) -> ContainerStatus | None:
        """Return what the kubelet last said about a container or init container."""
        status = self.status
        both = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        return next((each for each in both if each.name == name), None)


def path(namespace: str, name: str) -> str:
    """Return the path of a pod at the API server."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def memory_resource(domain: str = DOMAIN) -> str:
    """Return the resource that counts units of 256 MiB."""
    return f"{domain}/vgpu-memory"


def cores_resource(domain: str = DOMAIN) -> str:
    """Return the resource that counts percent of one card's time."""
    return f"{domain}/vgpu-cores"


def asks(container: Container, domain: str = DOMAIN) -> bool:
    """Tell whether a container asks for a slice at all, however badly; amounts of zero ask for none."""
    for resource in (memory_resource(domain), cores_resource(domain)):
        text = container.limits.get(resource, container.requests.get(resource))
        if text is None:
            continue
        try:
            if whole_number(text) > 0:
                return True
        except NotWhole:
            return True
    return False


def is_sidecar(container: Container) -> bool:
    """Tell whether an init container is one that goes on running beside the others."""
    return container.restart_policy == "Always"


def holders(pod: Pod, domain: str = DOMAIN) -> Iterator[Container]:
    """Yield the containers that hold a slice: app containers and native sidecars that ask for one."""
    for container in pod.spec.containers or ():
        if asks(container, domain):
            yield container
    for container in pod.spec.init_containers or ():
        if is_sidecar(container) and asks(container, domain):
            yield container


def container_ended(pod: Pod, name: str) -> bool:
    """Tell whether a container of a pod has ended and will not be started again.

    A pod that is being deleted holds what it has until its containers are reported as ended: one that
    only waits may still be started by a kubelet that does not know yet. A pod that has failed or
    succeeded holds only what is reported as running, so that one refused at admission holds nothing
    and one on a lost node keeps its cards.
    """
    status = pod.container_status(name)
    state = (status.state if status else None) or _WAITING
    if pod.terminal:
        return state.running is None
    if state.terminated is None:
        return False
    return pod.terminating or not _starts_again(pod, name, state.terminated)


def ended(pod: Pod, domain: str = DOMAIN) -> bool:
    """Tell whether every container of a pod that holds a slice has ended for good."""
    return all(container_ended(pod, container.name) for container in holders(pod, domain))


def _starts_again(pod: Pod, name: str, last: Terminated) -> bool:
    container = pod.container(name)
    if container is None or container.restart_policy_rules:
        return True
    policy = container.restart_policy or pod.spec.restart_policy
    return policy == "Always" or (policy == "OnFailure" and last.exit_code != 0) or policy not in _POLICIES


_POLICIES: Final = ("Always", "OnFailure", "Never")


class Pods:
    """What a reflector needs to know of pods: where they are, their type, and what is kept of one.

    Args:
        domain: of the resources and annotations that are kept.
        everything: False: pods that ask for no slice are not kept at all (for a whole cluster).
    """

    path = "/api/v1/pods"
    type = Pod

    def __init__(self, domain: str = DOMAIN, *, everything: bool = True) -> None:
        self._domain = domain
        self._prefix = f"{domain}/"
        self._everything = everything

    def keep(self, pod: Pod) -> Pod | None:
        """Drop what is not ours from a pod just decoded; None: keep nothing of it."""
        ours = False
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ())):
            self._trim(container)
            ours = ours or container.resources is not None
        if not (ours or self._everything):
            return None
        metadata = pod.metadata
        force_setattr(metadata, "annotations", self._of_domain(metadata.annotations))
        force_setattr(metadata, "namespace", sys.intern(metadata.namespace))
        if pod.spec.node_name is not None:
            force_setattr(pod.spec, "node_name", sys.intern(pod.spec.node_name))
        force_setattr(pod.status, "phase", sys.intern(pod.status.phase))
        return pod

    def _trim(self, container: Container) -> None:
        if container.resources is None:
            return
        limits = self._of_domain(container.resources.limits)
        requests = self._of_domain(container.resources.requests)
        kept = Resources(limits, limits if requests == limits else requests) if limits or requests else None
        force_setattr(container, "resources", kept)

    def _of_domain(self, texts: dict[str, str] | None) -> dict[str, str] | None:
        if not texts:
            return None
        kept = {
            key: text for key, text in texts.items() if key.startswith(self._prefix) or key == CONFIG_HASH
        }
        return kept or None
