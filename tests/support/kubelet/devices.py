"""The kubelet's device manager: which IDs are out, which pod has which, and what it asks plugins."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2
from tests.support.kubelet import checkpoint
from tests.support.kubelet.checkpoint import Held
from tests.support.kubelet.endpoint import Endpoint, go_error
from tests.support.kubelet.pods import Container, Kind, Pod


class AdmissionError(Exception):
    """The pod is refused for good."""


class ConfigError(Exception):
    """The container cannot be made now; it is tried again."""


@dataclass
class DeviceManager:
    """Devices by resource; everything that the kubelet draws from a map or a set is drawn at random here.

    `active` says which pods the kubelet still knows; the devices of all others are free.
    """

    directory: Path
    active: Callable[[], set[str]]
    random: random.Random
    by_numa: bool = True
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    held: dict[str, list[Held]] = field(default_factory=dict)
    """By UID of the pod."""
    known: dict[str, list[str]] = field(default_factory=dict)
    """Resources and their IDs as of the last checkpoint: known, but of no use until registered."""
    out: dict[str, set[str]] = field(default_factory=dict)
    in_flight: Callable[[], Awaitable[object]] | None = None
    """Awaited while an Allocate is in flight: its IDs are chosen, and no pod has them yet."""
    reusable: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By pod and resource: what plain init containers had, for the containers after them."""

    def load(self) -> None:
        """Start anew from the checkpoint, knowing no plugin."""
        rows, self.known = checkpoint.read(self.directory)
        self.held = {}
        for each in rows:
            self.held.setdefault(each.uid, []).append(each)
        self.endpoints, self.reusable = {}, {}
        self.rebuild()

    def save(self) -> None:
        registered = dict(self.known)
        for resource, endpoint in self.endpoints.items():
            registered[resource] = sorted(endpoint.healthy | endpoint.unhealthy)
        checkpoint.write(self.directory, self.rows(), registered, by_numa=self.by_numa)

    def rebuild(self) -> None:
        """Take what is out from what pods have; what is out and in no pod's hands yet is forgotten."""
        self.out = {}
        for each in self.rows():
            self.out.setdefault(each.resource, set()).update(each.ids)

    def update_allocated(self) -> None:
        """Drop ended pods; done before an allocation and, harmfully, at each List of PodResources."""
        active = self.active()
        if gone := self.held.keys() - active:
            for uid in gone:
                del self.held[uid]
            self.reusable = {key: ids for key, ids in self.reusable.items() if key[0] in active}
            self.rebuild()

    def rows(self) -> list[Held]:
        return [each for of_pod in self.held.values() for each in of_pod]

    def of(self, uid: str, container: str) -> dict[str, Held]:
        return {each.resource: each for each in self.held.get(uid, ()) if each.container == container}

    async def allocate(
        self, pod: Pod, container: Container, order: Iterable[str] | None, ids: dict[str, frozenset[str]]
    ) -> None:
        """Ask for each resource of a container in turn.

        Raises:
            AdmissionError: in the kubelet's words.
        """
        wanted = list(order or self.random.sample(sorted(container.limits), len(container.limits)))
        for resource in wanted:
            if resource not in self.endpoints and resource not in self.known:
                continue  # no plugin was ever here: the kubelet lets the pod run without
            if resource in self.of(pod.uid, container.name):
                continue
            self.update_allocated()
            reused = self.reusable.setdefault((pod.uid, resource), set())
            chosen = ids.get(resource) or self._choose(resource, container.limits[resource], reused)
            self.out.setdefault(resource, set()).update(chosen)
            if self.in_flight is not None:
                await self.in_flight()
            try:
                answer = await self.endpoints[resource].allocate(self.shuffled(chosen))
            except grpc.aio.AioRpcError as fault:
                self.rebuild()
                raise AdmissionError(
                    f"Allocate failed due to {go_error(fault)}, which is unexpected"
                ) from fault
            self.held.setdefault(pod.uid, []).append(Held(pod.uid, container.name, resource, chosen, answer))
            reused.update(chosen) if container.kind is Kind.INIT else reused.difference_update(chosen)
        self.save()

    def _choose(self, resource: str, amount: int, reusable: set[str]) -> frozenset[str]:
        endpoint = self.endpoints.get(resource)
        if endpoint is None or not endpoint.healthy:
            raise AdmissionError(
                "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices "
                f"{resource}, which is unexpected"
            )
        first = self.random.sample(sorted(reusable), min(amount, len(reusable)))
        free = endpoint.healthy - self.out.get(resource, set())
        if amount - len(first) > len(free):
            raise AdmissionError(
                f"Allocate failed due to requested number of devices unavailable for {resource}. "
                f"Requested: {amount}, Available: {len(free)}, which is unexpected"
            )
        return frozenset(first + self.random.sample(sorted(free), amount - len(first)))

    async def prestart(
        self, pod: Pod, container: Container, order: Iterable[str] | None
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Announce the start to each resource's plugin; return the CDI names and variables to start with.

        Raises:
            ConfigError: in the kubelet's words.
        """
        held = self.of(pod.uid, container.name)
        wanted = [each for each in container.limits if each in self.endpoints or each in self.known]
        for resource in order or self.random.sample(wanted, len(wanted)):
            endpoint = self.endpoints.get(resource)
            if endpoint is None:
                raise ConfigError(f"endpoint not found in cache for a registered resource: {resource}")
            if not endpoint.options.pre_start_required:
                continue
            if resource not in held:
                raise ConfigError(
                    f"no devices found allocated in local cache for pod {pod.uid}, "
                    f"container {container.name}, resource {resource}"
                )
            try:
                await endpoint.prestart(self.shuffled(held[resource].ids))
            except grpc.aio.AioRpcError as fault:
                raise ConfigError(
                    f"device plugin PreStartContainer rpc failed with err: {go_error(fault)}"
                ) from fault
        names: list[str] = []
        variables: dict[str, str] = {}
        for resource in self.random.sample(sorted(held), len(held)):
            answer = api_pb2.ContainerAllocateResponse.FromString(held[resource].answer)
            names += [device.name for device in answer.cdi_devices]
            variables.update(answer.envs)
        return tuple(dict.fromkeys(names)), variables

    def shuffled(self, ids: Iterable[str]) -> list[str]:
        listed = sorted(ids)
        return self.random.sample(listed, len(listed))
