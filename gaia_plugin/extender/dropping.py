"""Reservations that nobody needs any more are dropped: never by age or by a cache alone.

A cache only says where to look. What is dropped was seen at the API server: the pod is gone, has ended, is
bound elsewhere; or it is still bound nowhere long after its bind, and then it is written first, so that a
Binding under way is refused.
"""

from __future__ import annotations

from typing import Final, Literal

import structlog

from gaia_plugin.extender import binding
from gaia_plugin.extender.binding import NotBound, read_pod
from gaia_plugin.kube import nodes
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import GpuNode, Spec
from gaia_plugin.kube.pods import DOMAIN, Pod, container_ended, path

log = structlog.get_logger(__name__)

UNBOUND_SECONDS: Final = 120.0
"""After so long a pod with a reservation that is bound nowhere is held to have been given up."""

Standing = Literal["gone", "elsewhere", "ended", "here", "waiting"]
"""What has become of the pod of a reservation; the first three are for good."""


def retry_key(domain: str = DOMAIN) -> str:
    """Return the annotation that is written to a waiting pod so that the scheduler looks at it again."""
    return f"{domain}/retry"


async def touch_pod(api: binding.Server, pod: Pod, domain: str, at: str) -> None:
    """Write an unbound pod over the version that was read, so that a Binding under way gets a conflict.

    The annotation lets the scheduler look at the pod again, too, which is what it waits for.

    Raises:
        ApiError: `conflict`: it has changed, perhaps was bound; `missing`; refused; no answer.
    """
    metadata = {
        "uid": pod.uid,
        "resourceVersion": pod.metadata.version,
        "annotations": {retry_key(domain): at},
    }
    where = path(pod.metadata.namespace, pod.metadata.name)
    await api.patch(where, {"metadata": metadata}, timeout=binding.SECONDS)


async def drop_reservation(
    api: binding.Server, name: str, uid: str, domain: str, *, pod_path: str, overdue: bool, at: str
) -> GpuNode | None:
    """Drop what is reserved for a pod on a node if reality allows it; return the object as it is then.

    None: nothing was dropped, because the pod is bound here, still waits in its time, or has nothing
    reserved there.

    Args:
        api: an `Api`.
        name: of the node.
        uid: of the pod.
        domain: of the objects.
        pod_path: where a pod of its name is.
        overdue: it has been unbound past its time.
        at: the time of day as text.

    Raises:
        ApiError: `conflict`: something was written meanwhile, look again; refused; no answer.
    """
    node = await nodes.read(api, name, domain, timeout=binding.SECONDS)
    if node is None or all(one.uid != uid for one in node.spec.reservations):
        return None
    names = {one.container for one in node.spec.reservations if one.uid == uid}
    pod = await _live(api, pod_path)
    standing = standing_of(pod, uid, name, names)
    if standing == "here" or (standing == "waiting" and not overdue):
        return None
    if standing == "waiting":
        assert pod is not None
        await touch_pod(api, pod, domain, at)
    left = tuple(one for one in node.spec.reservations if one.uid != uid)
    written = await nodes.put_spec(api, node, Spec(left), domain, timeout=binding.SECONDS)
    log.info("a reservation was dropped", node=name, pod=pod_path.rsplit("/", 1)[-1], why=standing)
    return written


def standing_of(pod: Pod | None, uid: str, node: str, containers: set[str]) -> Standing:
    """Return what has become of the pod of a reservation, from a live read; pure."""
    if pod is None or pod.uid != uid:
        return "gone"
    if pod.spec.node_name and pod.spec.node_name != node:
        return "elsewhere"
    if pod.terminal and all(container_ended(pod, each) for each in containers):
        return "ended"
    return "here" if pod.spec.node_name else "waiting"


async def _live(api: binding.Server, pod_path: str) -> Pod | None:
    try:
        return await read_pod(api, pod_path)
    except NotBound as error:
        if isinstance(error.__cause__, ApiError):
            return None
        raise ApiError(0, "", str(error), request=f"GET {pod_path}") from error
