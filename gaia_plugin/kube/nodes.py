"""Reading and writing a `GPUNode`. Every write names the version it was decided upon, and is sent once.

Who is told `conflict` reads again and decides again; who gets no answer knows nothing: the write may
still arrive, and then counts only if nothing else was written meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from gaia_plugin.kube import gpunode
from gaia_plugin.kube.errors import NO_ANSWER, ApiError
from gaia_plugin.kube.gpunode import GpuNode, Spec, Status
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.pods import DOMAIN

SECONDS: Final = 5.0
"""How long an answer is waited for: a person waits for it."""


class Writer(Protocol):
    """What is needed of an `Api`."""

    async def get(self, path: str, *, timeout: float) -> bytes:
        """Return an object."""

    async def create(self, path: str, body: Mapping[str, Any], *, timeout: float) -> bytes:
        """Create an object."""

    async def replace(self, path: str, body: Mapping[str, Any], *, timeout: float) -> bytes:
        """Replace an object."""

    async def patch(self, path: str, body: Mapping[str, Any], *, timeout: float) -> bytes:
        """Send a JSON merge patch."""


class NotInstalled(ApiError):
    """The API server does not know the kind at all: somebody has to apply its definition."""

    def __init__(self, domain: str) -> None:
        how = "kubectl apply -f deploy/crd.yaml"
        if domain != DOMAIN:
            how = f"python -m gaia_plugin.kube.crd {domain} | kubectl apply -f -"
        super().__init__(
            404,
            "NotFound",
            f"it does not know GPUNodes of {domain}/{gpunode.VERSION}. Apply their definition: {how}",
            request=gpunode.path(domain=domain),
        )


class NoSuchNode(ApiError):
    """The cluster has no Node of this name: its `GPUNode` went with it, and cannot be made."""

    def __init__(self, name: str) -> None:
        super().__init__(
            404,
            "NotFound",
            f"the cluster has no Node {name} any more. Its kubelet makes it again when it is restarted.",
            request=f"GET {_node(name)}",
        )


def _node(name: str) -> str:
    return f"/api/v1/nodes/{name}"


async def read(api: Writer, name: str, domain: str = DOMAIN, *, timeout: float = SECONDS) -> GpuNode | None:
    """Return the object of a node as the API server has it now; None: there is none.

    What cannot be read of it is left out and logged (`gpunode.read`). Where the kind is not installed
    there is no object either; `create` tells.

    Raises:
        ApiError: refused, no answer, or an answer that is no object.
    """
    try:
        answer = await api.get(gpunode.path(name, domain), timeout=timeout)
    except ApiError as error:
        if error.missing:
            return None
        raise
    return _read(answer)


async def create(
    api: Writer, name: str, uid: str, domain: str = DOMAIN, *, timeout: float = SECONDS
) -> GpuNode:
    """Create the object of a node, empty, and return it; it goes with the Node of this UID.

    Raises:
        NotInstalled: the API server does not know the kind.
        ApiError: `conflict`: it exists; refused; no answer: it may exist.
    """
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    metadata = {"name": name, "ownerReferences": [owner]}
    try:
        answer = await api.create(gpunode.path(domain=domain), _body(domain, metadata), timeout=timeout)
    except ApiError as error:
        if error.missing:  # a collection is missing only when the kind is
            raise NotInstalled(domain) from error
        raise
    return _read(answer)


async def put_status(
    api: Writer, node: GpuNode, status: Status, domain: str = DOMAIN, *, timeout: float = SECONDS
) -> GpuNode:
    """Replace the status over the version of `node`; return the object as it is then.

    Raises:
        ApiError: `conflict`: it was changed or made anew since; `missing`: it is gone, or its kind is;
            refused; no answer: it may be written, now or later.
    """
    path = gpunode.path(node.metadata.name, domain, subresource="status")
    body = _body(domain, _version_of(node.metadata), status=msgspec.to_builtins(status))
    return _read(await api.replace(path, body, timeout=timeout))


async def put_spec(
    api: Writer, node: GpuNode, spec: Spec, domain: str = DOMAIN, *, timeout: float = SECONDS
) -> GpuNode:
    """Replace the reservations over the version of `node`; return the object as it is then.

    Sent as a patch with that version, which is a PUT of this part alone: labels, owners and what a
    newer Gaia keeps in the specification stay. A write that changes nothing keeps the version, so
    it voids nothing that somebody else decided upon; a new `at`, finer than a second, is a change.

    Raises:
        ApiError: as `put_status`.
    """
    reservations = [msgspec.to_builtins(each) for each in spec.reservations]
    body = {"metadata": _version_of(node.metadata), "spec": {"reservations": reservations}}
    return _read(await api.patch(gpunode.path(node.metadata.name, domain), body, timeout=timeout))


async def node_uid(api: Writer, name: str, *, timeout: float = SECONDS) -> str:
    """Return the UID of a Node, which owns its `GPUNode`.

    Raises:
        NoSuchNode: there is none.
        ApiError: refused, or no answer.
    """
    try:
        answer = await api.get(_node(name), timeout=timeout)
    except ApiError as error:
        if error.missing:
            raise NoSuchNode(name) from error
        raise
    try:
        return _BARE.decode(answer).metadata.uid
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(NO_ANSWER, "", f"an answer that is no Node: {error}") from error


class _Bare(msgspec.Struct, frozen=True):
    metadata: Metadata


_BARE: Final = msgspec.json.Decoder(_Bare)


def _body(domain: str, metadata: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": gpunode.api_version(domain),
        "kind": gpunode.KIND,
        "metadata": dict(metadata),
        **parts,
    }


def _version_of(metadata: Metadata) -> dict[str, str]:
    return {"name": metadata.name, "uid": metadata.uid, "resourceVersion": metadata.version}


def _read(answer: bytes) -> GpuNode:
    try:
        return gpunode.read(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(NO_ANSWER, "", f"an answer that is no {gpunode.KIND}: {error}") from error
