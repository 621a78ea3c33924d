"""What a pod agent asks of the API server and writes to it, beside its watch."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gaia_plugin.agent.meters import NOBODY, Meter, Outcome, writing
from gaia_plugin.agent.pods.ports import NodeFacts
from gaia_plugin.kube import writes
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import NO_ANSWER, ApiError
from gaia_plugin.kube.placement import placement_key
from gaia_plugin.kube.pods import Pod, Pods

REPORTER: Final = "agent"


class NodeServer:
    """Implements `gaia_plugin.agent.pods.ports.Server`.

    Args:
        api: the API server.
        node: name of this node.
        domain: of resources and annotations.
        meter: is told of writes.
    """

    def __init__(self, api: Api, node: str, domain: str, meter: Meter = NOBODY) -> None:
        self._api = api
        self._node = node
        self._domain = domain
        self._kind = Pods(domain)
        self._meter = meter

    @property
    def selector(self) -> str:
        """Return the field selector of this node's pods."""
        return f"spec.nodeName={self._node}"

    async def uids_now(self) -> set[str]:
        """Return the UIDs of this node's pods, as etcd has them: no version is named, so no cache answers."""
        found: set[str] = set()
        async for body in self._api.list_pages(self._kind.path, {"fieldSelector": self.selector}):
            try:
                found.update(item.metadata.uid for item in _UIDS.decode(body).items)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ApiError(NO_ANSWER, "", f"a list that is none: {error}") from error
        return found

    async def annotate(self, pod: Pod, placement: str) -> Pod | None:
        """Write where a pod was placed; None where it is gone, another one, or was changed by others."""
        try:
            with writing(self._meter, "annotation"):
                written = await writes.annotate(self._api, pod, {placement_key(self._domain): placement})
        except ApiError as error:
            if error.missing or error.conflict:
                return None
            raise
        return self._kind.keep(written)

    async def evict(self, pod: Pod, sentence: str, reason: str = "NoRoom") -> None:
        """Delete a pod, if it is still the same, then say on it why it could not stay."""
        with writing(self._meter, "deletion"):
            deleted = await writes.delete_pod(self._api, pod)
        if deleted:
            await self.tell(pod, reason, sentence)

    async def tell(
        self,
        pod: Pod,
        reason: str,
        sentence: str,
        *,
        kind: Literal["Normal", "Warning"] = "Warning",
        action: str = "Delete",
    ) -> None:
        """Say something on a pod; a failure is logged, never raised."""
        told = await writes.tell(
            self._api, pod, reason, sentence,
            action=action, reporter=f"{self._domain}/{REPORTER}", instance=self._node, kind=kind,
        )  # fmt: skip
        self._meter.wrote("event", Outcome.OK if told else Outcome.FAILED)

    async def facts(self) -> NodeFacts:
        """Return what this node says of its machine."""
        body = await self._api.get(f"/api/v1/nodes/{self._node}")
        try:
            info = _NODE.decode(body).status.info
            return NodeFacts(info.runtime, info.boot, info.machine)
        except msgspec.DecodeError as error:
            raise ApiError(NO_ANSWER, "", f"a node that cannot be read: {error}") from error


class _Identity(msgspec.Struct, frozen=True):
    uid: str


class _Item(msgspec.Struct, frozen=True):
    metadata: _Identity


class _Items(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...]


class _Info(msgspec.Struct, frozen=True):
    runtime: str = msgspec.field(default="", name="containerRuntimeVersion")
    boot: str = msgspec.field(default="", name="bootID")
    machine: str = msgspec.field(default="", name="machineID")


class _NodeStatus(msgspec.Struct, frozen=True):
    info: _Info = msgspec.field(default=_Info(), name="nodeInfo")


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


_UIDS: Final = msgspec.json.Decoder(_Items)
_NODE: Final = msgspec.json.Decoder(_Node)
