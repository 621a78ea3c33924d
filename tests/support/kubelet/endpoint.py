"""The kubelet's connection to one registered plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

LIST_AND_WATCH = "/v1beta1.DevicePlugin/ListAndWatch"


class Endpoint:
    """One plugin: its list as it comes in, and the calls to it."""

    def __init__(self, resource: str, socket: Path) -> None:
        self.resource = resource
        # the defaults of a Go client, above all 4 MiB for one message
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 4 << 20))
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)
        self._stub = api_pb2_grpc.DevicePluginStub(self._channel)
        self._watch: asyncio.Task[None] | None = None
        self.options = api_pb2.DevicePluginOptions()
        self.messages: list[bytes] = []
        """Every list that came in, byte for byte."""
        self.healthy: set[str] = set()
        self.unhealthy: set[str] = set()
        self.stopped = False
        self.fault: str | None = None
        """What the list ended with."""
        self.news = asyncio.Event()

    async def connect(self) -> None:
        """Connect and ask for the options; a plugin that does not serve is not registered."""
        await asyncio.wait_for(self._channel.channel_ready(), 5)
        self.options = await self._stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=60)
        self._watch = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        call = self._channel.unary_stream(
            LIST_AND_WATCH, request_serializer=api_pb2.Empty.SerializeToString, response_deserializer=bytes
        )(api_pb2.Empty())
        try:
            async for message in call:
                self.messages.append(message)
                listed = api_pb2.ListAndWatchResponse.FromString(message).devices
                self.healthy = {device.ID for device in listed if device.health == "Healthy"}
                self.unhealthy = {device.ID for device in listed} - self.healthy
                self.news.set()
            self.fault = "EOF"
        except grpc.aio.AioRpcError as fault:
            self.fault = go_error(fault)
        self._stopped()

    def _stopped(self) -> None:
        self.stopped = True
        self.unhealthy |= self.healthy
        self.healthy = set()
        self.news.set()

    async def allocate(self, ids: Iterable[str]) -> bytes:
        """Return the answer for one container, encoded."""
        request = api_pb2.AllocateRequest(
            container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=list(ids))]
        )
        answer = await self._cut_off_by_close(lambda: self._stub.Allocate(request))
        return answer.container_responses[0].SerializeToString()

    async def prestart(self, ids: Iterable[str]) -> None:
        request = api_pb2.PreStartContainerRequest(devices_ids=list(ids))
        await self._cut_off_by_close(lambda: self._stub.PreStartContainer(request, timeout=120))

    async def _cut_off_by_close(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Fail a call as Go does when its connection is closed, as by a plugin that registers anew."""
        try:
            return await call()
        except (asyncio.CancelledError, grpc.aio.UsageError) as cut:
            task = asyncio.current_task()
            if not self.stopped or (task is not None and task.cancelling()):
                raise
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.CANCELLED, nothing, nothing, "grpc: the client connection is closing"
            ) from cut

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if not self.stopped:
            self._stopped()
        await self._channel.close()


def go_error(fault: grpc.aio.AioRpcError) -> str:
    """Write an error as Go's gRPC does."""
    words = fault.code().name.split("_")
    code = "Canceled" if words == ["CANCELLED"] else "".join(word.capitalize() for word in words)
    return f"rpc error: code = {code} desc = {fault.details()}"
