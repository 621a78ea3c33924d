"""The kubelet's PodResources server, with its limit, its faults and its habit of forgetting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from gaia_plugin.deviceplugin.proto.podresources.v1 import api_pb2, api_pb2_grpc
from tests.support.kubelet.devices import DeviceManager
from tests.support.kubelet.pods import Kind, Pod

Context = grpc.aio.ServicerContext[Any, Any]


class PodResourcesServer(api_pb2_grpc.PodResourcesListerServicer):
    """Answers from the device manager; `pods` are those that the kubelet knows."""

    def __init__(self, devices: DeviceManager, pods: Callable[[], list[Pod]]) -> None:
        self._devices = devices
        self._pods = pods
        self.get = "enabled"
        """``enabled``, ``disabled`` (by its feature gate) or ``missing`` (a kubelet before 1.27)."""
        self.rate = 100.0
        self.burst = 10
        self.faults: list[grpc.StatusCode] = []
        """Each is the answer to one call, in order."""
        self.calls: list[str] = []
        self.exhausted = 0
        self._tokens, self._filled = float(self.burst), time.monotonic()

    async def Get(
        self, request: api_pb2.GetPodResourcesRequest, context: Context
    ) -> api_pb2.GetPodResourcesResponse:
        await self._enter("Get", context)
        if self.get == "missing":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method Get")
        if self.get == "disabled":
            await context.abort(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")
        for pod in reversed(self._pods()):
            if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                return api_pb2.GetPodResourcesResponse(pod_resources=self._resources(pod))
        said = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        return await context.abort(grpc.StatusCode.UNKNOWN, said)

    async def List(
        self, request: api_pb2.ListPodResourcesRequest, context: Context
    ) -> api_pb2.ListPodResourcesResponse:
        await self._enter("List", context)
        self._devices.update_allocated()
        return api_pb2.ListPodResourcesResponse(pod_resources=map(self._resources, self._pods()))

    async def _enter(self, call: str, context: Context) -> None:
        self.calls.append(call)
        now = time.monotonic()
        self._tokens = min(self.burst, self._tokens + (now - self._filled) * self.rate)
        self._filled = now
        if self._tokens < 1:
            self.exhausted += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self._tokens -= 1
        if self.faults:
            await context.abort(self.faults.pop(0), "as the test wished")

    def _resources(self, pod: Pod) -> api_pb2.PodResources:
        containers = []
        for container in pod.in_order(Kind.SIDECAR, Kind.APP):
            held = self._devices.of(pod.uid, container.name)
            devices = [
                api_pb2.ContainerDevices(resource_name=resource, device_ids=[each])
                for resource, of_resource in held.items()
                for each in self._devices.shuffled(of_resource.ids)
            ]
            self._devices.random.shuffle(devices)
            containers.append(api_pb2.ContainerResources(name=container.name, devices=devices))
        return api_pb2.PodResources(name=pod.name, namespace=pod.namespace, containers=containers)
