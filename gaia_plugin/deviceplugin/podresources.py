"""Asks the kubelet which devices a pod's containers have, by the pod's name.

The kubelet answers a hundred such questions a second and turns the rest away, so a refusal for that
reason is asked again. It knows names and no UIDs: what comes back may be a predecessor's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio
import structlog

from gaia_plugin.deviceplugin import sockets
from gaia_plugin.deviceplugin.proto.podresources.v1 import api_pb2, api_pb2_grpc
from gaia_plugin.deviceplugin.quiet import Quiet
from gaia_plugin.errors import Code, Refusal

Devices = dict[str, dict[str, frozenset[str]]]
"""By container and resource: the IDs."""

_LARGEST_ANSWER: Final = 16 << 20
_ANSWER: Final = 3.0
_SHORTEST_WAIT: Final = 0.01
_LONGEST_WAIT: Final = 0.2
_ASK_AGAIN: Final = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE})
_log = structlog.get_logger()
_Answer = TypeVar("_Answer")


class PodResources:
    """The kubelet's PodResources interface.

    Args:
        kubelet: the kubelet's directory.
        quiet: knows of Allocates under way; the plugins tell it.
        patience: seconds after which a question is given up.
    """

    def __init__(self, kubelet: Path, quiet: Quiet | None = None, *, patience: float = 10.0) -> None:
        self._channel = sockets.channel(sockets.pod_resources_socket(kubelet), largest_answer=_LARGEST_ANSWER)
        self._stub = api_pb2_grpc.PodResourcesListerStub(self._channel)
        self._quiet = quiet or Quiet()
        self._patience = patience
        self._has_get = True

    async def get(self, namespace: str, pod: str) -> Devices:
        """Return the devices of the pod's app containers and sidecars; nothing if there is no such pod.

        Raises:
            Refusal: code ``unavailable``, when the kubelet does not answer in time.
        """
        deadline = time.monotonic() + self._patience
        if self._has_get:
            try:
                return await self._get(namespace, pod, deadline)
            except NotImplementedError:
                self._has_get = False
                _log.info("this kubelet's PodResources has no Get; its List is used instead")
        return await self._from_list(namespace, pod, deadline)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _get(self, namespace: str, pod: str, deadline: float) -> Devices:
        request = api_pb2.GetPodResourcesRequest(pod_name=pod, pod_namespace=namespace)
        try:
            answer = await self._ask(lambda: self._stub.Get(request, timeout=_ANSWER), deadline)
        except grpc.aio.AioRpcError as fault:
            # The kubelet has one code, UNKNOWN, for "no such pod" and for "switched off".
            said = fault.details() or ""
            if fault.code() == grpc.StatusCode.UNIMPLEMENTED or said.endswith("Get method disabled"):
                raise NotImplementedError from None
            if fault.code() == grpc.StatusCode.NOT_FOUND or said.endswith("not found"):
                return {}
            raise _unavailable(fault) from fault
        return _devices(answer.pod_resources)

    async def _from_list(self, namespace: str, pod: str, deadline: float) -> Devices:
        async def ask() -> api_pb2.ListPodResourcesResponse:
            if not await self._quiet.wait(deadline - time.monotonic()):
                raise Refusal(
                    Code.UNAVAILABLE,
                    "The kubelet is handing out devices without a pause, and its list of pods must not be "
                    "read meanwhile; this is tried again.",
                )
            return await self._stub.List(api_pb2.ListPodResourcesRequest(), timeout=_ANSWER)

        try:
            answer = await self._ask(ask, deadline)
        except grpc.aio.AioRpcError as fault:
            raise _unavailable(fault) from fault
        for each in answer.pod_resources:
            if (each.namespace, each.name) == (namespace, pod):
                return _devices(each)
        return {}

    async def _ask(self, call: Callable[[], Awaitable[_Answer]], deadline: float) -> _Answer:
        wait = _SHORTEST_WAIT
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as fault:
                if fault.code() not in _ASK_AGAIN or time.monotonic() + wait > deadline:
                    raise
            # apart from each other, or all who were turned away come back at once
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311
            wait = min(2 * wait, _LONGEST_WAIT)


def _devices(pod: api_pb2.PodResources) -> Devices:
    found: Devices = {}
    for container in pod.containers:
        by_resource: dict[str, set[str]] = {}
        for part in container.devices:
            by_resource.setdefault(part.resource_name, set()).update(part.device_ids)
        found[container.name] = {resource: frozenset(ids) for resource, ids in by_resource.items()}
    return found


def _unavailable(fault: grpc.aio.AioRpcError) -> Refusal:
    return Refusal(
        Code.UNAVAILABLE,
        f"The kubelet does not say which devices this pod has ({fault.code().name}: {fault.details()}); "
        "this is tried again.",
    )
