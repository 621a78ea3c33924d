"""One resource of the node as the kubelet sees it: a list of devices, Allocate and PreStartContainer.

Nothing here knows of cards, pods or the ledger: a `Handler` decides. The kubelet's rules that shaped
this file: an error in Allocate is final for the pod, so Allocate never refuses; PreStartContainer may
refuse and is asked again, so doubt belongs there.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import grpc
import grpc.aio
import structlog

from gaia_plugin.deviceplugin import sockets
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from gaia_plugin.deviceplugin.quiet import Quiet
from gaia_plugin.errors import Refusal

VERSION: Final = "v1beta1"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"

_ENDING: Final = 1.0
"""Seconds that calls under way are given when a server stops: more than an Allocate takes."""

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Device:
    """One device ID of a resource, and whether the kubelet may hand it out."""

    id: str
    healthy: bool = True


class Handler(Protocol):
    """What stands behind both resources; one handler serves both plugins."""

    def allocate(self, resource: str, ids: frozenset[str]) -> str:
        """Return the qualified CDI device name for one container's `ids` of `resource`.

        Called on the event loop, once per container and resource, in any order: takes less than a
        millisecond, books nothing and never raises for want of room.
        """

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        """Make sure that the container which holds `ids` of `resource` may start, and with what.

        Called before each start of the container, restarts included, once per resource in any order.

        Raises:
            gaia_plugin.errors.Refusal: not now; the kubelet shows the sentence and asks again.
        """


@lru_cache(maxsize=1 << 16)
def _as_told(name: str, healthy: bool) -> api_pb2.Device:
    """Return a device as it is sent; to be copied, never changed."""
    return api_pb2.Device(ID=name, health=HEALTHY if healthy else UNHEALTHY)


class Plugin:
    """Serves one resource on a socket of its own; all methods belong to the event loop's thread.

    Args:
        resource: the full name, such as ``gaia.io/vgpu-memory``.
        kubelet: the kubelet's directory, absolute.
        handler: decides what a container gets.
        quiet: told of each Allocate.
    """

    def __init__(self, resource: str, kubelet: Path, handler: Handler, quiet: Quiet | None = None) -> None:
        self.resource = resource
        self.endpoint = f"gaia-{resource.rpartition('/')[2]}.sock"
        self.socket = sockets.plugin_directory(kubelet) / self.endpoint
        self.handler = handler
        self.quiet = quiet or Quiet()
        self._server: grpc.aio.Server | None = None
        self._socket: sockets.Identity | None = None
        self._list: api_pb2.ListAndWatchResponse | None = None
        self._changed = asyncio.Event()
        self._life = 0
        self._watchers = 0
        self._watched_last = time.monotonic()

    def update(self, devices: Sequence[Device]) -> None:
        """Make `devices` the list that the kubelet sees, in the order of their IDs.

        Until the first call the kubelet is told nothing, which is not the same as an empty list: what
        runs keeps its devices.
        """
        listed = api_pb2.ListAndWatchResponse(
            devices=[
                _as_told(device.id, device.healthy) for device in sorted(devices, key=lambda each: each.id)
            ]
        )
        if listed != self._list:
            self._list = listed
            self._wake()

    async def lists(self) -> AsyncGenerator[api_pb2.ListAndWatchResponse, None]:
        """Yield the list, and again whenever it has changed, until the plugin stops or serves anew."""
        life = self._life
        self._watchers += 1
        try:
            while life == self._life:
                changed = self._changed
                if self._list is not None:
                    yield self._list
                await changed.wait()
        finally:
            self._watchers -= 1
            self._watched_last = time.monotonic()

    @property
    def unwatched(self) -> float:
        """Seconds since the kubelet last had the list open; 0 while it has."""
        return 0.0 if self._watchers else time.monotonic() - self._watched_last

    @property
    def options(self) -> api_pb2.DevicePluginOptions:
        """What the kubelet is told at registration."""
        return api_pb2.DevicePluginOptions(pre_start_required=True)

    @property
    def serving(self) -> bool:
        """Whether the plugin's socket is there and is the one it made."""
        return self._socket is not None and sockets.identity(self.socket) == self._socket

    async def serve(self) -> None:
        """Serve on a socket made anew; calls under way on an earlier one may end.

        Raises:
            OSError, RuntimeError: the socket cannot be made, for instance without the kubelet's directory.
            Unusable: its path is too long.
        """
        await self._end()
        # gRPC unlinks the path that it bound when a server ends, at a time of its own: it would take a
        # later server's socket with it. A name that is left at once cannot be hit.
        bound = self.socket.with_name(f".{self.endpoint}")
        bound.unlink(missing_ok=True)
        server = grpc.aio.server()
        api_pb2_grpc.add_DevicePluginServicer_to_server(_Servicer(self), server)
        server.add_insecure_port(sockets.target(bound))
        await server.start()
        try:
            bound.chmod(0o600)
            os.rename(bound, self.socket)
        except OSError:
            await server.stop(None)
            raise
        self._server, self._socket = server, sockets.identity(self.socket)

    async def stop(self) -> None:
        """Stop serving and remove the socket, if it is the one that the plugin made."""
        if self.serving:
            self.socket.unlink(missing_ok=True)
        await self._end()

    async def _end(self) -> None:
        server, self._server, self._socket = self._server, None, None
        self._life += 1
        self._wake()
        if server is not None:
            await server.stop(_ENDING)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class _Servicer(api_pb2_grpc.DevicePluginServicer):
    """The kubelet's calls, in terms of a `Plugin` and its handler."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    async def GetDevicePluginOptions(
        self, request: api_pb2.Empty, context: _Context
    ) -> api_pb2.DevicePluginOptions:
        return self._plugin.options

    async def ListAndWatch(
        self, request: api_pb2.Empty, context: _Context
    ) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
        async for listed in self._plugin.lists():
            yield listed

    async def GetPreferredAllocation(
        self, request: api_pb2.PreferredAllocationRequest, context: _Context
    ) -> NoReturn:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Any of the devices will do.")

    async def Allocate(self, request: api_pb2.AllocateRequest, context: _Context) -> api_pb2.AllocateResponse:
        plugin = self._plugin
        with plugin.quiet.broken():
            try:
                names = [
                    plugin.handler.allocate(plugin.resource, frozenset(each.devices_ids))
                    for each in request.container_requests
                ]
            except Exception:
                _log.exception("allocate failed", resource=plugin.resource)
                await context.abort(grpc.StatusCode.INTERNAL, _FAULT)
            return api_pb2.AllocateResponse(
                container_responses=[
                    api_pb2.ContainerAllocateResponse(cdi_devices=[api_pb2.CDIDevice(name=name)])
                    for name in names
                ]
            )

    async def PreStartContainer(
        self, request: api_pb2.PreStartContainerRequest, context: _Context
    ) -> api_pb2.PreStartContainerResponse:
        plugin = self._plugin
        try:
            await plugin.handler.prestart(plugin.resource, frozenset(request.devices_ids))
        except Refusal as refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal.sentence)
        except Exception:
            _log.exception("prestart failed", resource=plugin.resource)
            await context.abort(grpc.StatusCode.INTERNAL, _FAULT)
        return api_pb2.PreStartContainerResponse()


_FAULT: Final = "Gaia's agent on this node failed at its part of the start; its log has the fault."
