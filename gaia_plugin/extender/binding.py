"""Binding a pod: its cards are promised in the node's `GPUNode` first, then it is bound to the node.

`tests/model/extender.py` is this order as a program. It may end between any two steps: kube-scheduler asks
again, this process or another, and finds the promise or the bound pod. Nothing is remembered here but which
binds are under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec
import structlog

from gaia_plugin.errors import Refusal
from gaia_plugin.extender.demand import Demand, demand_of
from gaia_plugin.extender.fit import Placed, fit
from gaia_plugin.extender.node import count, topology_of
from gaia_plugin.extender.reasons import SILENT, wanted
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.kube import nodes
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import Amounts, GpuNode, Reservation, Spec
from gaia_plugin.kube.placement import Placement, placement_key, render
from gaia_plugin.kube.pods import Pod, path
from gaia_plugin.kube.times import now_text
from gaia_plugin.placement import CardState, Slice
from gaia_plugin.placement.preference import Cost, binpack
from gaia_plugin.shares import Share

log = structlog.get_logger(__name__)

TRIES: Final = 4
"""The first, and three more after a conflict."""

SECONDS: Final = 5.0
"""How long one answer is waited for."""

IN_ALL_SECONDS: Final = 20.0
"""How long a bind may take; less than kube-scheduler waits for it (`httpTimeout` in its configuration)."""

_POD: Final = msgspec.json.Decoder(Pod)


class Server(nodes.Writer, Protocol):
    """What is needed of an `Api`."""


class NotBound(Exception):
    """A bind that failed; the message is shown in an event of the pod and kube-scheduler tries again."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a bind decides upon: node and pod, each with its version."""

    node: GpuNode
    pod: Pod


async def read_node_and_pod(api: Server, name: str, pod_path: str, domain: str) -> Read:
    """Begin a bind: read the node's object and the pod, from the API server and not from a cache.

    Raises:
        NotBound: one of them is not there.
        ApiError: refused, or no answer.
    """
    node, pod = await asyncio.gather(nodes.read(api, name, domain, timeout=SECONDS), read_pod(api, pod_path))
    if node is None:
        raise NotBound(f"{name} has no GPUNode: the Gaia agent has not reported from it.")
    return Read(node, pod)


async def read_pod(api: Server, pod_path: str) -> Pod:
    """Return a pod as the API server has it now.

    Raises:
        NotBound: it is not there, or cannot be read.
        ApiError: refused, or no answer.
    """
    try:
        return _POD.decode(await api.get(pod_path, timeout=SECONDS))
    except ApiError as error:
        if error.missing:
            raise NotBound("the pod is gone.") from error
        raise
    except msgspec.DecodeError as error:
        raise NotBound(f"the pod cannot be read: {error}.") from error


async def reserve(api: Server, read: Read, where: Placed, domain: str, at: str) -> GpuNode:
    """Write the reservations of a pod over the version that was read, and return the object as it is then.

    Always, also where they are there already: whoever decided upon the version before, to drop them, is
    told so by that. `at` makes it a change; the API server keeps the version of an object that is written
    as it was.

    Raises:
        ApiError: `conflict`, refused, or no answer.
    """
    others = tuple(one for one in read.node.spec.reservations if one.uid != read.pod.uid)
    spec = Spec((*others, *reservations(read.pod, where, at)))
    return await nodes.put_spec(api, read.node, spec, domain, timeout=SECONDS)


async def bind(api: Server, read: Read, where: Placed, domain: str) -> None:
    """Send the Binding, with the pod's UID and version as read before the reservation was written.

    Raises:
        ApiError: `conflict`: the pod has changed, or is bound; `missing`; refused; no answer.
    """
    pod, node = read.pod, read.node.metadata.name
    text = render(Placement(pod.uid, node, where))
    metadata = {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "uid": pod.uid,
        "resourceVersion": pod.metadata.version,
        "annotations": {placement_key(domain): text},
    }
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    at = path(pod.metadata.namespace, pod.metadata.name)
    await api.create(f"{at}/binding", body, timeout=SECONDS)


def reservations(pod: Pod, where: Placed, at: str) -> tuple[Reservation, ...]:
    """Return what is promised to a pod as its node's object tells it."""
    return tuple(
        Reservation(pod.uid, container, part.card, Amounts.of(part.share), pod=pod.title, at=at)
        for container, slices in sorted(where.items())
        for part in slices
    )


class Binder:
    """Carries out what kube-scheduler asks to be bound.

    Args:
        api: an `Api`.
        snapshot: what is bound here is counted in it at once.
        observe: told of every `GPUNode` that a write was answered with.
        cost: what speaks against a card; the same as for filter.
        at: the time of day as text.
    """

    def __init__(
        self,
        api: Server,
        snapshot: Snapshot,
        *,
        observe: Callable[[GpuNode], None] = lambda _: None,
        cost: Cost = binpack,
        at: Callable[[], str] = now_text,
    ) -> None:
        self._api = api
        self._snapshot = snapshot
        self._observe = observe
        self._cost = cost
        self._at = at
        self._under_way: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def busy(self, uid: str) -> bool:
        """Tell whether a bind of this pod is under way."""
        return any(one == uid for one, _ in self._under_way)

    async def bind_pod(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Bind a pod to a node; asked again while that is under way, wait for the same.

        Raises:
            NotBound: it is not bound, or nobody knows; asking again is right.
        """
        key = (uid, node)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._bind(path(namespace, name), uid, node), name=f"bind {uid}")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        # who asked may give up; the bind goes on, and is found done when they ask again
        await asyncio.shield(task)

    async def close(self) -> None:
        """End the binds under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever asked has heard it, or has given up

    async def _bind(self, pod_path: str, uid: str, name: str) -> None:
        self._count_at_once(uid, name)
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            # one after the other on a node: two of ours would only give each other conflicts
            async with asyncio.timeout(IN_ALL_SECONDS), lock:
                await self._tries(pod_path, uid, name)
        except TimeoutError as error:
            raise NotBound("the API server does not answer; it is tried again.") from error
        finally:
            self._snapshot.forget(name, uid)

    def _count_at_once(self, uid: str, name: str) -> None:
        """Count the pod on the cards that it is about to get: the next filter may come any moment."""
        snapshot = self._snapshot
        pod, node = snapshot.waiting.get(uid), snapshot.nodes.get(name)
        if pod is None or node is None:
            return
        try:
            demand = demand_of(pod, snapshot.domain)
            where = fit(demand, snapshot.cards_for(node, uid), node.topology, cost=self._cost)
        except Refusal:
            return
        snapshot.assume(name, uid, where)

    async def _tries(self, pod_path: str, uid: str, name: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                return await self._try(pod_path, uid, name)
            except ApiError as error:
                if error.no_answer and await self._is_bound(pod_path, uid, name):
                    return None
                if error.missing:
                    raise NotBound(f"the pod or the GPUNode of {name} is gone.") from error
                if not error.conflict or not left:
                    raise NotBound(_told(error)) from error
        raise AssertionError("the last try either returns or raises")

    async def _try(self, pod_path: str, uid: str, name: str) -> None:
        domain = self._snapshot.domain
        read = await read_node_and_pod(self._api, name, pod_path, domain)
        if self._done(read.pod, uid, name):
            return
        demand = self._demand(read.pod)
        where = self._where(read, demand)
        if where:
            written = await reserve(self._api, read, where, domain, self._at())
            self._snapshot.assume(name, uid, where)
            self._observe(written)
        await bind(self._api, read, where, domain)
        log.info("bound", pod=read.pod.title, node=name)

    def _done(self, pod: Pod, uid: str, name: str) -> bool:
        """Tell whether the pod is bound to the node already.

        Raises:
            NotBound: it cannot be bound to it any more.
        """
        if uid and pod.uid != uid:
            raise NotBound("the pod is gone; another one has its name.")
        if pod.spec.node_name:
            if pod.spec.node_name == name:
                return True
            raise NotBound(f"the pod is bound to {pod.spec.node_name} already.")
        if pod.terminating or pod.terminal:
            raise NotBound("the pod is being deleted.")
        return False

    def _demand(self, pod: Pod) -> Demand:
        try:
            return demand_of(pod, self._snapshot.domain)
        except Refusal as refusal:
            raise NotBound(refusal.sentence) from refusal

    def _where(self, read: Read, demand: Demand) -> Placed:
        """Choose the cards on the node as it was read; those that are reserved for the pod, if they do.

        Raises:
            NotBound: it has no room, or its agent takes nothing.
        """
        name, uid = read.node.metadata.name, read.pod.uid
        known = self._snapshot.nodes.get(name)
        if not read.node.status.ready or (known is not None and self._snapshot.silent(known)):
            raise NotBound(SILENT)
        # binds that were asked for before this one are in the object as it was read; later ones wait for it
        cards = count(
            read.node,
            known.bound.values() if known else (),
            domain=self._snapshot.domain,
            leave_out=uid,
        ).cards
        try:
            chosen = fit(demand, cards, topology_of(read.node), cost=self._cost)
        except Refusal as refusal:
            raise NotBound(
                f"{wanted(demand.kind)} is not free on {name} any more: {refusal.sentence}"
            ) from refusal
        promised = promised_to(read.pod, read.node)
        return promised if same_size(promised, chosen) and fits(promised, cards) else chosen

    async def _is_bound(self, pod_path: str, uid: str, name: str) -> bool:
        """Tell whether a bind whose answer was lost has happened; not known is no."""
        try:
            pod = await read_pod(self._api, pod_path)
        except (ApiError, NotBound):
            return False
        return pod.uid == uid and pod.spec.node_name == name


def promised_to(pod: Pod, node: GpuNode) -> Placed:
    """Return what is reserved for a pod on a node."""
    found: dict[str, tuple[Slice, ...]] = {}
    for one in node.spec.reservations:
        if one.uid == pod.uid:
            found[one.container] = (*found.get(one.container, ()), Slice(one.card, one.amounts.share))
    return {name: tuple(sorted(slices, key=lambda each: each.card)) for name, slices in found.items()}


def same_size(one: Placed, other: Placed) -> bool:
    """Tell whether two placements give each container the same amounts, on whichever cards."""
    return _sizes(one) == _sizes(other)


def fits(where: Placed, cards: Sequence[CardState]) -> bool:
    """Tell whether a placement fits into what is free, on distinct healthy cards for each container."""
    free: dict[str, Share] = {card.uuid: card.free for card in cards if card.healthy}
    for slices in where.values():
        if len({part.card for part in slices}) != len(slices):
            return False
        for part in slices:
            if part.card not in free or not part.share.fits(free[part.card]):
                return False
            free[part.card] = free[part.card] - part.share
    return True


def _sizes(where: Placed) -> Mapping[str, Any]:
    return {
        name: sorted((part.share.units, part.share.cores) for part in slices)
        for name, slices in where.items()
    }


def _told(error: ApiError) -> str:
    if error.status == 409:
        return "node or pod were changed by others at each of four tries; it is tried again."
    return str(error)
