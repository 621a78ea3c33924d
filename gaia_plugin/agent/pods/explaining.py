"""Asking a node why a pod has what it has: what `explain` needs is brought together here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from gaia_plugin.agent.pods.admit import Admission
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.explain import Admitted
from gaia_plugin.agent.pods.gpunode import NodeWriter
from gaia_plugin.agent.pods.identity import Owner
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.pods import Pod

_T = TypeVar("_T")

NOT_KNOWN_YET = (
    "The agent on this node has not heard yet from the API server what runs here; new slices wait for that."
)


class Explaining(Protocol):
    """What is needed of the node."""

    core: PodCore
    sight: Sight
    admission: Admission
    writer: NodeWriter | None

    def do(self, step: Callable[[], _T]) -> Awaitable[_T]:
        """Run a step of the core, alone."""


async def explain_pod(node: Explaining, title: str) -> models.Explained:
    """Tell of a pod (namespace/name) what it asks for, what it has, and why it has no more.

    Raises:
        Refusal: ``no_such_slot``, where neither the pod nor anything of it is on this node.
    """
    pod = node.sight.named(title)
    admitted = {} if pod is None else _admitted(node, pod)
    titles = {} if node.writer is None else dict(node.writer.promised_to)
    titles |= {each.uid: each.title for each in node.sight.pods()}
    doubt = _doubt(node)
    now = node.admission.refusals.now()
    unseen = "" if node.sight.synced else f"{NOT_KNOWN_YET} {node.sight.trouble}".rstrip()
    told = await node.do(
        lambda: node.core.explain(title, pod, admitted, titles, now=now, doubt=doubt, unseen=unseen)
    )
    if told is not None:
        return told
    trouble = f" {node.sight.trouble}" if node.sight.trouble else ""
    raise Refusal(
        Code.NO_SUCH_SLOT,
        f"The agent of node {node.core.node_name} knows no pod {title}: `kubectl get pod -o wide` says "
        f"whether it is on another node, or on none yet.{trouble}",
    )


def _doubt(node: Explaining) -> str:
    """Return why nothing new is made at present; empty: it is."""
    if not node.admission.reconciled.is_set():
        return node.admission.doubt or NOT_KNOWN_YET
    return "" if node.writer is None else node.writer.doubt


def _admitted(node: Explaining, pod: Pod) -> dict[str, Admitted]:
    found = {}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        owner = Owner(pod.uid, container.name)
        found[container.name] = Admitted(
            node.sight.life(owner), node.admission.refusals.of(owner), node.admission.left(owner)
        )
    return found
