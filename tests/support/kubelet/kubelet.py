"""A kubelet and its container runtime, as far as a device plugin can tell.

    async with SimulatedKubelet(directory, cdi) as kubelet:
        await kubelet.registered("gaia.io/vgpu-memory")
        pod = Pod.of({"gaia.io/vgpu-memory": 16})
        await kubelet.admit(pod)            # Allocate, per container and resource
        await kubelet.start(pod)            # PreStartContainer, then the container with its CDI edits
        pod.container("main").edits.env
        await kubelet.restart_container(pod, "main")
        await kubelet.restart()             # deletes all sockets, reads its checkpoint
        await kubelet.force_delete(pod)     # gone from the API, its containers still run

Order, wording and what is kept are those of the real one; waits between tries are not.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from gaia_plugin.deviceplugin.proto.podresources.v1 import api_pb2_grpc as podresources_grpc
from tests.support.kubelet.cdi import CreateContainerError, Runtime
from tests.support.kubelet.devices import AdmissionError, ConfigError, DeviceManager
from tests.support.kubelet.endpoint import Endpoint
from tests.support.kubelet.podresources import PodResourcesServer
from tests.support.kubelet.pods import Container, Kind, Pod, State

Context = grpc.aio.ServicerContext[Any, Any]


async def until(what: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait until `what()` is true; return it."""
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.01)
    return result


class SimulatedKubelet(api_pb2_grpc.RegistrationServicer):
    """See the module.

    Args:
        directory: what would be /var/lib/kubelet; short, for sockets lie in it.
        cdi: where the runtime looks for CDI specs.
        seed: of all that the kubelet leaves to chance.
        by_numa: the newer shape of DeviceIDs in the checkpoint.
    """

    def __init__(self, directory: Path, *cdi: Path, seed: int | None = None, by_numa: bool = True) -> None:
        self.directory = directory
        self.plugins = directory / "device-plugins"
        self.socket = self.plugins / "kubelet.sock"
        self.random = random.Random(seed)
        self.pods: list[Pod] = []
        """All that it knows, ended ones included."""
        self.runtime = Runtime(tuple(cdi))
        self.devices = DeviceManager(self.plugins, self._active, self.random, by_numa)
        self.pod_resources = PodResourcesServer(self.devices, lambda: self.pods)
        self.registrations: list[tuple[str, float]] = []
        """Resource and time (monotonic) of each."""
        self.came_up = 0.0
        self.refuse_registrations = ""
        self._servers: list[grpc.aio.Server] = []
        self._admitting = asyncio.Lock()

    # -- its own life

    async def __aenter__(self) -> Self:
        await self.come_up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_down()

    async def come_up(self, *, keep_sockets: bool = False) -> None:
        """Start: delete all sockets (unless `keep_sockets`), read the checkpoint, serve."""
        self.plugins.mkdir(parents=True, exist_ok=True)
        for path in self.plugins.iterdir():
            if stat.S_ISSOCK(path.lstat().st_mode) and not keep_sockets:
                path.unlink()
        self.devices.load()
        resources = self.directory / "pod-resources" / "kubelet.sock"
        await self._serve(
            resources, podresources_grpc.add_PodResourcesListerServicer_to_server, self.pod_resources
        )
        self.came_up = time.monotonic()
        await self._serve(self.socket, api_pb2_grpc.add_RegistrationServicer_to_server, self)

    async def go_down(self, *, killed: bool = False) -> None:
        """End; `killed`: its socket stays behind, with nobody listening."""
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)
        for endpoint in list(self.devices.endpoints.values()):
            await endpoint.close()
        if not killed:
            self.socket.unlink(missing_ok=True)

    async def restart(self) -> None:
        """Restart; containers go on, and no plugin is called."""
        await self.go_down()
        await self.come_up()

    async def _serve(self, socket: Path, add: Callable[[Any, grpc.aio.Server], None], servicer: Any) -> None:
        socket.parent.mkdir(parents=True, exist_ok=True)
        # gRPC unlinks what it bound when a server is destroyed, which may be after the next has started
        bound = socket.with_name(f".{socket.name}")
        bound.unlink(missing_ok=True)
        server = grpc.aio.server()
        add(servicer, server)
        server.add_insecure_port(f"unix:{bound}")
        await server.start()
        os.rename(bound, socket)
        self._servers.append(server)

    # -- plugins

    async def Register(self, request: api_pb2.RegisterRequest, context: Context) -> api_pb2.Empty:
        if request.version != "v1beta1":
            said = f"requested API version {request.version} is not supported by kubelet"
            await context.abort(grpc.StatusCode.UNKNOWN, said)
        if self.refuse_registrations:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refuse_registrations)
        endpoint = Endpoint(request.resource_name, self.plugins / request.endpoint)
        try:
            await endpoint.connect()
        except (grpc.aio.AioRpcError, TimeoutError) as fault:
            await endpoint.close()
            await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {fault!r}")
        except asyncio.CancelledError:  # the kubelet goes down
            await endpoint.close()
            raise
        earlier = self.devices.endpoints.get(request.resource_name)
        self.devices.endpoints[request.resource_name] = endpoint
        self.registrations.append((request.resource_name, time.monotonic()))
        if earlier is not None:
            await earlier.close()
        return api_pb2.Empty()

    def endpoint(self, resource: str) -> Endpoint | None:
        return self.devices.endpoints.get(resource)

    def is_registered(self, resource: str) -> bool:
        """Whether there is a plugin for it that has sent its list."""
        endpoint = self.endpoint(resource)
        return endpoint is not None and not endpoint.stopped and bool(endpoint.messages)

    async def registered(self, *resources: str, seconds: float = 120) -> None:
        """Wait until all `resources` have a plugin with a list."""
        await until(lambda: all(map(self.is_registered, resources)), seconds)

    def listed(self, resource: str) -> dict[str, bool]:
        """The IDs of the last list, and whether each is healthy."""
        endpoint = self.endpoint(resource)
        if endpoint is None:
            return {}
        return {each: each in endpoint.healthy for each in sorted(endpoint.healthy | endpoint.unhealthy)}

    def last_message(self, resource: str) -> bytes:
        """The last list, as it came over the wire."""
        endpoint = self.endpoint(resource)
        assert endpoint is not None, f"no plugin of {resource} is registered"
        return endpoint.messages[-1]

    def allocatable(self, resource: str) -> int:
        return sum(self.listed(resource).values())

    def capacity(self, resource: str) -> int:
        return len(self.listed(resource))

    # -- pods

    def _active(self) -> set[str]:
        return {pod.uid for pod in self.pods if not pod.ended}

    async def admit(
        self,
        pod: Pod,
        *,
        order: Iterable[str] | None = None,
        same_ids_as: Pod | None = None,
    ) -> bool:
        """Take a pod in: Allocate for each container, one pod after another; return whether it was taken.

        Args:
            order: of the resources; at random without.
            same_ids_as: hand out that pod's IDs again, whoever holds them, as the kubelet does when a List
                of PodResources made it forget them.
        """
        async with self._admitting:
            self.pods.append(pod)
            try:
                for container in (*pod.in_order(Kind.INIT, Kind.SIDECAR), *pod.in_order(Kind.APP)):
                    ids = self.ids(same_ids_as, container.name) if same_ids_as else {}
                    await self.devices.allocate(pod, container, order, ids)
            except AdmissionError as error:
                pod.phase, pod.reason = "Failed", "UnexpectedAdmissionError"
                pod.message = f"Pod was rejected: {error}"
                return False
            return True

    def ids(self, pod: Pod, container: str = "main") -> dict[str, frozenset[str]]:
        """By resource: the IDs that a container has."""
        return {resource: held.ids for resource, held in self.devices.of(pod.uid, container).items()}

    async def start(self, pod: Pod, *, order: Iterable[str] | None = None) -> bool:
        """Try once to start what does not run yet; return whether the pod runs.

        Without success the waiting container tells why in `reason` and `message`.
        """
        for container in pod.in_order(Kind.INIT, Kind.SIDECAR):
            if container.state is State.WAITING and not await self._create(pod, container, order):
                return False
            if container.kind is Kind.INIT:
                container.state = State.ENDED
        for container in pod.in_order(Kind.APP):
            if container.state is State.WAITING:
                await self._create(pod, container, order)
        if pod.running:
            pod.phase = "Running"
        return pod.running

    async def until_running(self, pod: Pod, seconds: float = 120) -> None:
        """Try to start the pod until it runs; the kubelet would wait 1 s, then 11 to 14 s, between tries."""
        deadline = time.monotonic() + seconds
        while not await self.start(pod):
            said = [f"{each.name}: {each.reason}: {each.message}" for each in pod.containers]
            assert time.monotonic() < deadline, f"{pod.name} does not start; {'; '.join(said)}"
            await asyncio.sleep(0.05)

    async def run(self, pod: Pod) -> Pod:
        """Admit the pod and start it, as often as it takes."""
        assert await self.admit(pod), pod.message
        await self.until_running(pod)
        return pod

    async def restart_container(
        self, pod: Pod, name: str = "main", *, order: Iterable[str] | None = None
    ) -> bool:
        """End a container and try once to start it again, with the devices it has."""
        container = pod.container(name)
        container.state, container.reason, container.message = State.WAITING, "CrashLoopBackOff", ""
        if not await self._create(pod, container, order):
            return False
        container.restarts += 1
        return True

    async def _create(self, pod: Pod, container: Container, order: Iterable[str] | None) -> bool:
        container.tries += 1
        try:
            names, variables = await self.devices.prestart(pod, container, order)
            edits = self.runtime.create(names)
        except (ConfigError, CreateContainerError) as error:
            container.reason = (
                "CreateContainerConfigError" if isinstance(error, ConfigError) else "CreateContainerError"
            )
            container.message = str(error)
            return False
        edits.env = {**variables, **edits.env}
        container.cdi_names, container.edits, container.id = names, edits, uuid.uuid4().hex
        container.state, container.reason, container.message = State.RUNNING, "", ""
        return True

    def end_container(self, pod: Pod, name: str = "main") -> None:
        """A container has ended and will not be started again."""
        pod.container(name).state = State.ENDED
        if all(each.state is State.ENDED for each in pod.containers):
            pod.phase = "Succeeded"

    def finish(self, pod: Pod) -> None:
        """All containers have ended; the pod is still known."""
        for container in pod.containers:
            self.end_container(pod, container.name)

    def terminate(self, pod: Pod) -> None:
        """The pod is being deleted; its containers still run, and it keeps its devices."""
        pod.deleted = True

    async def delete(self, pod: Pod) -> None:
        """Delete the pod in order: its containers end, then it is gone."""
        self.terminate(pod)
        self.finish(pod)
        self.pods.remove(pod)

    async def force_delete(self, pod: Pod) -> None:
        """Delete the pod with a grace of 0: it is gone and its devices are free, but its containers run."""
        pod.deleted = True
        self.pods.remove(pod)

    def kill(self, pod: Pod) -> None:
        """End the containers of a pod that was deleted by force."""
        for container in pod.containers:
            container.state = State.ENDED
