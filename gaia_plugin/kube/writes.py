"""What Gaia writes to pods: annotations, a deletion, events. Each names the UID that was decided upon."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import msgspec
import structlog

from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod, path
from gaia_plugin.kube.times import now_text

log = structlog.get_logger(__name__)

_TRIES: Final = 4
_LONGEST_NOTE: Final = 1000
"""Characters of an event's text; the API server takes 1,024 bytes."""

_POD: Final = msgspec.json.Decoder(Pod)


class Writer(Protocol):
    """What writes need of an `Api`."""

    async def get(self, path: str) -> bytes:
        """Return an object."""

    async def create(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Create an object."""

    async def patch(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Send a JSON merge patch."""

    async def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Delete an object."""


async def read_pod(api: Writer, namespace: str, name: str) -> Pod:
    """Return a pod as the API server has it now.

    Raises:
        ApiError: `missing`, refused, or no answer.
    """
    return _POD.decode(await api.get(path(namespace, name)))


async def annotate(api: Writer, pod: Pod, annotations: Mapping[str, str | None]) -> Pod:
    """Set annotations (None: remove) of exactly this pod; return it as it stands then.

    A pod changes all the time by its kubelet's reports, so a conflict is tried again on the newer
    version, but only as long as these annotations still are as `pod` shows them: they are what the
    caller has decided upon.

    Raises:
        ApiError: `missing`; `conflict`: another pod of that name, or somebody changed the same
            annotations; refused; no answer: they may be written.
    """
    decided = {key: pod.annotations.get(key) for key in annotations}
    current = pod
    for left in reversed(range(_TRIES)):
        metadata = {"uid": pod.uid, "annotations": dict(annotations)}
        if current.metadata.version:
            metadata["resourceVersion"] = current.metadata.version
        try:
            answer = await api.patch(path(pod.metadata.namespace, pod.metadata.name), {"metadata": metadata})
            return _POD.decode(answer)
        except ApiError as error:
            if not error.conflict or not left:
                raise
            current = await read_pod(api, pod.metadata.namespace, pod.metadata.name)
            same = all(current.annotations.get(key) == value for key, value in decided.items())
            if current.uid == pod.uid and all(
                current.annotations.get(k) == v for k, v in annotations.items()
            ):
                return current  # an earlier try whose answer was lost
            if current.uid != pod.uid or not same:
                raise
    raise AssertionError("the last try either returns or raises")


async def delete_pod(api: Writer, pod: Pod, *, grace: int | None = None) -> bool:
    """Delete exactly this pod; return whether it was there to be deleted.

    `grace` are seconds its containers get to end; None: what the pod says. A pod of the same name with
    another UID is left alone.

    Raises:
        ApiError: refused, or no answer: it may be deleted.
    """
    options: dict[str, Any] = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": pod.uid},
    }
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    try:
        await api.delete(path(pod.metadata.namespace, pod.metadata.name), options)
    except ApiError as error:
        if error.missing or error.conflict:
            return False
        raise
    return True


async def tell(
    api: Writer,
    pod: Pod,
    reason: str,
    note: str,
    *,
    reporter: str,
    instance: str,
    action: str = "Placing",
    kind: Literal["Normal", "Warning"] = "Warning",
    container: str | None = None,
) -> bool:
    """Put an event on a pod, for whoever looks at it; return whether that worked.

    An event is a courtesy: a failure is logged and nothing else depends on it.

    Args:
        api: an `Api`.
        pod: the pod it is about.
        reason: one word for programs, such as ``NoRoom``.
        note: the sentence for people.
        reporter: who says it, such as ``gaia.io/agent``.
        instance: which one of them, such as the node's name.
        action: what was being done.
        kind: ``Warning``, or ``Normal``.
        container: which of the pod's containers.
    """
    namespace = pod.metadata.namespace
    regarding = {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": namespace,
        "name": pod.metadata.name,
        "uid": pod.uid,
    }
    if container is not None:
        regarding["fieldPath"] = f"spec.containers{{{container}}}"
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.metadata.name[:200].rstrip('.-')}.{secrets.token_hex(8)}",
            "namespace": namespace,
        },
        "eventTime": now_text(),
        "type": kind,
        "reason": reason,
        "action": action,
        "note": _cut(note),
        "regarding": regarding,
        "reportingController": reporter,
        "reportingInstance": instance[:128],
    }
    try:
        await api.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", body)
    except ApiError as error:
        log.warning("an event was not written", pod=pod.title, reason=reason, error=str(error))
        return False
    return True


def _cut(note: str) -> str:
    """Return a note that the API server takes: it counts bytes."""
    raw = note.encode()
    return note if len(raw) <= _LONGEST_NOTE else raw[:_LONGEST_NOTE].decode("utf-8", "ignore") + "..."
