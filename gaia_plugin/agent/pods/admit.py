"""`PreStartContainer`: a container is given its slot before it is made, and again before each restart.

Each slot has one task at a time that sees to it, and every call about it waits for that task. So the
two calls of a container may come in any order, a call that the kubelet gives up leaves nothing half
done, and no container waits for another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import structlog

from gaia_plugin.agent.pods import identity
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.placed import Order, largest_card
from gaia_plugin.agent.pods.ports import Checkpoint, Server, Untold
from gaia_plugin.agent.pods.refusals import Refusals
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.agent.settings import NO_ROOM_SECONDS
from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.wishes import wish_of
from gaia_plugin.ledger import LedgerUnwritable, SlotRecord
from gaia_plugin.ledger.allocations import Allocation
from gaia_plugin.placement.refusals import share_text

log = structlog.get_logger(__name__)

PATIENCE: Final = 20.0
"""Seconds that a call waits for the API server or for room. The kubelet gives up after 30."""

_LOOK_AGAIN: Final = 2.0
"""Seconds after which a pod without room looks again although nothing was given back."""
_LONGEST_PAUSE: Final = 120.0
"""Seconds between two tries to delete a pod, at the most."""
_AT_LEAST: Final = 0.5
"""Seconds between two looks at the least: many that wait must not keep those busy that give back."""
_NO_ROOM: Final = (Code.CARD_FULL, Code.UNAVAILABLE, Code.NO_SUCH_CARD)

Hook = Callable[[SlotRecord], Awaitable[None]]


@dataclass
class _Refused:
    """Since when a deletion is refused: seconds of the last pause, and until when."""

    pause: float = 0.0
    until: float = float("-inf")


class Desk(Protocol):
    """What admission asks of the node: one step of the core at a time, and sockets."""

    core: PodCore

    async def reserve(self, order: Order) -> SlotRecord:
        """Book an order."""

    async def put_in_force(self, slot: str) -> frozenset[str]:
        """Commit, write page and specs, serve the socket; return the names that resolve."""

    async def take_back(self, slot: str) -> None:
        """Strike out what was reserved."""

    async def find(self, owner: Owner) -> SlotRecord | None:
        """Return a container's slot."""

    async def secure(self, record: SlotRecord) -> frozenset[str]:
        """Make sure of directory, page, socket and specs; return the names that resolve."""

    async def renew_usage(self, slot: str) -> None:
        """Clear the claims of a container that is about to start again."""

    def changed(self) -> None:
        """Tell that a pod was given something."""


class Admission:
    """Sees to the slots of containers that are about to start.

    Args:
        desk: the node.
        sight: the pods.
        checkpoint: the kubelet's record.
        server: the API server.
        announce: called between booking a slot and putting it in force; what it raises undoes the slot.
        clock: monotonic seconds.
        no_room_seconds: after which a pod that no card takes is deleted.
    """

    def __init__(
        self,
        desk: Desk,
        sight: Sight,
        checkpoint: Checkpoint,
        server: Server,
        announce: Hook | None = None,
        clock: Callable[[], float] = time.monotonic,
        no_room_seconds: float = NO_ROOM_SECONDS,
    ) -> None:
        self._desk = desk
        self._sight = sight
        self._checkpoint = checkpoint
        self._server = server
        self._announce = announce
        self._clock = clock
        self._no_room_seconds = no_room_seconds
        self._tasks: dict[Owner, asyncio.Task[frozenset[str]]] = {}
        self._no_room_since: dict[Owner, float] = {}
        self._deleted: dict[Owner, str] = {}
        """What was said of pods deleted for want of room: the kubelet asks until they are gone."""
        self._undeleted: dict[Owner, _Refused] = {}
        self._room = asyncio.Event()
        self.refusals = Refusals(clock)
        self.patience = PATIENCE
        self.doubt = ""
        """Why it is not known what runs here, where the agent's start alone does not explain it."""
        self.reconciled = asyncio.Event()
        """Set when it is known what runs; before, a new slot might get a running container's cards."""

    async def close(self) -> None:
        """End what is under way; what was committed stays."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def room(self) -> None:
        """Tell that something was given back."""
        self._room.set()

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        """Make sure that every living container that holds exactly these devices may start.

        Raises:
            Refusal: not now; the sentence is for the pod's events.
        """
        until = self._clock() + self.patience
        rows = await self._identified(resource, ids)
        answer, having = await self._answer(rows)
        if answer.refuse:
            # a power cut may have taken the newest answer from our file; the kubelet's has it
            rows = await self._read_again(resource, ids)
            answer, having = await self._answer(rows)
        if answer.wait is not None:
            if (mirror := self._sight.mirror(answer.wait.uid)) is not None:
                raise _static(mirror)
            await self._sight.wait(answer.wait.uid, until - self._clock())
            if self._sight.life(answer.wait) is Life.UNKNOWN and not answer.ensure:
                if (mirror := self._sight.mirror(answer.wait.uid)) is not None:
                    raise _static(mirror)
                raise _unseen(self._sight)
            answer, having = await self._answer(rows)
        if answer.refuse:
            raise Refusal(Code.UNAVAILABLE, answer.refuse)
        for owner in set(answer.ensure) - having:
            self._order(owner)  # what cannot be had is said before anything is made
        alone = len(answer.ensure) == 1
        for owner in answer.ensure:
            names = {row.name for row in rows if (row.uid, row.container) == (owner.uid, owner.container)}
            await self._join(owner, names, until, alone=alone)

    # -- who

    async def _identified(self, resource: str, ids: frozenset[str]) -> Sequence[Allocation]:
        """Return the allocations of these devices, with the owners that the checkpoint says."""
        allocations = self._desk.core.allocations
        rows = allocations.by_ids(resource, ids)
        if rows and all(row.bound for row in rows):
            return rows
        return await self._read_again(resource, ids)

    async def _read_again(self, resource: str, ids: frozenset[str]) -> Sequence[Allocation]:
        await self.read_checkpoint()
        return self._desk.core.allocations.by_ids(resource, ids)

    async def read_checkpoint(self) -> None:
        """Take in what the kubelet's checkpoint says of names of ours.

        Raises:
            Refusal: it cannot be read.
        """
        core = self._desk.core
        found = identity.names_in(await self._checkpoint.entries(), f"{core.domain}/slot")
        rows = core.allocations.all()
        known = {row.nonce for row in rows}
        new, strange = identity.news(rows, found)
        for sentence in strange:
            log.error("contradiction", what=sentence)
        for each in new:
            if self._sight.life(each.owner) is Life.ENDED:
                continue  # the kubelet strikes an ended pod out at its next admission only
            uid, container = each.owner.uid, each.owner.container
            if each.nonce in known:
                core.allocations.bind(each.nonce, uid, container)
            else:
                log.info("an allocation was found again", uid=uid, container=container)
                core.allocations.adopt(each.resource, each.ids, each.nonce, uid, container)

    async def _answer(self, rows: Sequence[Allocation]) -> tuple[identity.Answer, set[Owner]]:
        """Return what to see to, and which of the owners have a slot."""
        slots = set()
        for owner in {Owner(row.uid, row.container) for row in rows if row.bound}:
            record = await self._desk.find(owner)
            if record is not None and not (record.reserved or record.releasing):
                slots.add(owner)
        return identity.answer(rows, self._sight.life, slots.__contains__), slots

    # -- what

    async def _join(self, owner: Owner, names: set[str], until: float, *, alone: bool) -> None:
        """Wait until the container's slot is there and these names of it resolve."""
        while True:
            task = self._tasks.get(owner)
            if task is None:
                task = asyncio.get_running_loop().create_task(self._see_to(owner, until, alone))
                self._tasks[owner] = task
                task.add_done_callback(partial(self._done, owner))
                mine = True
            else:
                mine = False
            # the call may be given up; what it has begun is finished
            secured = await asyncio.shield(task)
            if mine or names <= secured:
                return

    def _done(self, owner: Owner, task: asyncio.Task[frozenset[str]]) -> None:
        self._tasks.pop(owner, None)
        # looked at in any case, so that a call that was given up leaves no complaint
        if not task.cancelled() and isinstance(fault := task.exception(), Refusal):
            self.refusals.note(owner, fault)

    async def _see_to(self, owner: Owner, until: float, alone: bool) -> frozenset[str]:
        try:
            record = await self._desk.find(owner)
            if record is not None and record.reserved:
                await self._desk.take_back(record.slot)
                record = None
            if record is None:
                names = await self._new(owner, until)
                self._no_room_since.pop(owner, None)
                self._desk.changed()
                return names
            if record.releasing:
                raise Refusal(
                    Code.UNAVAILABLE, "This container's slice is being given back; nothing starts in it."
                )
            if alone and self._has_run(owner):
                await self._desk.renew_usage(record.slot)
            return await self._desk.secure(record)
        except (OSError, Unusable) as error:
            raise Refusal(
                Code.UNAVAILABLE, f"The agent on this node cannot prepare the container: {error}"
            ) from error

    def _has_run(self, owner: Owner) -> bool:
        pod = self._sight.pod(owner.uid)
        status = None if pod is None else pod.container_status(owner.container)
        return status is not None and bool(status.container_id)

    async def _new(self, owner: Owner, until: float) -> frozenset[str]:
        """Make a slot: book it, tell the cluster, put it in force; return the names that resolve."""
        order = self._order(owner)  # first, so that what cannot be had is said at once
        await self._wait_reconciled(until)
        while True:
            try:
                record = await self._book(order)
                break
            except Refusal as refusal:
                # a full disk, or an API server that is away, is not for the pod to pay for
                if refusal.code not in _NO_ROOM or isinstance(refusal, LedgerUnwritable | Untold):
                    raise
                await self._no_room(order, refusal)
                if self._clock() >= until:
                    raise
            await self._wait_room(min(_LOOK_AGAIN, until - self._clock()))
            order = self._order(owner)  # its placement may have changed, or it may be gone
        # what fails here leaves it reserved: the next call, or the sweep after its pod, takes it back
        return await self._desk.put_in_force(record.slot)

    async def _book(self, order: Order) -> SlotRecord:
        """Book an order and tell the cluster of it; what the cluster cannot be told of is taken back."""
        record = await self._desk.reserve(order)
        try:
            if self._announce is not None:
                await self._announce(record)
        except BaseException:
            await asyncio.shield(self._desk.take_back(record.slot))
            raise
        return record

    def left(self, owner: Owner) -> float | None:
        """Return the seconds until a container's pod is deleted for want of room; None: it waits for none."""
        since = self._no_room_since.get(owner)
        return None if since is None else since + self._no_room_seconds - self._clock()

    def busy(self, owner: Owner) -> bool:
        """Tell whether a container is seen to at the moment."""
        return owner in self._tasks

    def _order(self, owner: Owner) -> Order:
        pod = self._sight.pod(owner.uid)
        if pod is None or self._sight.life(owner) is not Life.LIVING:
            raise Refusal(Code.UNAVAILABLE, "This pod has ended; nothing is started for it.")
        core = self._desk.core
        wish = wish_of(pod, owner.container, domain=core.domain, card_units=largest_card(core.cards))
        return Order(owner, pod, wish)

    async def _wait_reconciled(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock())):
                await self.reconciled.wait()
        except TimeoutError:
            raise Refusal(
                Code.UNAVAILABLE,
                self.doubt
                or "The agent on this node has just started and has not heard from the API server yet what "
                "runs here; new slices wait for that.",
            ) from None

    async def _wait_room(self, seconds: float) -> None:
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await asyncio.sleep(_AT_LEAST)
                await self._room.wait()

    async def _no_room(self, order: Order, refusal: Refusal) -> None:
        """Note that no card takes it; after `no_room_seconds` of that the pod is deleted."""
        if order.owner in self._deleted:
            raise Refusal(Code.CARD_FULL, self._deleted[order.owner])
        self.refusals.note(order.owner, refusal)
        now = self._clock()
        since = self._no_room_since.setdefault(order.owner, now)
        if now - since < self._no_room_seconds:
            return
        await self._evict(order, refusal, now)

    async def _evict(self, order: Order, refusal: Refusal, now: float) -> None:
        """Delete a pod that no card takes; what is refused is said once and tried ever less often."""
        refused = self._undeleted.setdefault(order.owner, _Refused())
        if now < refused.until:
            return
        node, seconds = self._desk.core.node_name, self._no_room_seconds
        sentence = (
            f"No card of node {node} took this pod for {seconds:g} seconds. "
            f"{self._with_largest(refusal.sentence)}"
        )
        try:
            await self._server.evict(order.pod, sentence)
        except ApiError as error:
            log.warning("not deleted", pod=order.pod.title, why=str(error))
            if not refused.pause:
                await self._server.tell(order.pod, "NotDeleted", f"{sentence} It cannot be deleted: {error}")
            refused.pause = min(_LONGEST_PAUSE, max(_LOOK_AGAIN, 2 * refused.pause))
            refused.until = now + refused.pause
            return
        log.info("deleted for want of room", pod=order.pod.title)
        self._undeleted.pop(order.owner, None)
        self._deleted[order.owner] = sentence
        raise Refusal(Code.CARD_FULL, sentence)

    def _with_largest(self, sentence: str) -> str:
        """Add the largest free slice to a refusal that does not name it."""
        free = self._desk.core.largest_free()
        if "largest free slice" in sentence:
            return sentence
        if free is None:
            return f"{sentence} Nothing at all is free on this node."
        return f"{sentence} The largest free slice of this node is {share_text(free)}."

    def forget(self, alive: Callable[[str], bool]) -> None:
        """Forget since when pods wait that are gone, and what was said of them."""
        self.refusals.forget(alive)
        notes: dict[Owner, float] | dict[Owner, str] | dict[Owner, _Refused]
        for notes in (self._no_room_since, self._deleted, self._undeleted):
            for owner in [owner for owner in notes if not alive(owner.uid)]:
                del notes[owner]


def _static(mirror: Pod) -> Refusal:
    return Refusal(
        Code.UNAVAILABLE,
        f"{mirror.title} is a static pod, and static pods are not given slices: the API server knows them by "
        "another UID. Create it through the API server, for instance as a DaemonSet.",
    )


def _unseen(sight: Sight) -> Refusal:
    if sight.synced and sight.trouble:
        return Refusal(
            Code.UNAVAILABLE,
            f"The API server cannot be reached by the node's agent: {sight.trouble} It has to show this pod "
            "before it is given a slice. Running containers are not touched.",
        )
    if not sight.synced:
        return Refusal(
            Code.UNAVAILABLE,
            "The agent on this node does not reach the API server, which has to show this pod before it is "
            "given a slice. Running containers are not touched.",
        )
    return Refusal(
        Code.UNAVAILABLE, "The API server has not shown this pod to the node's agent yet; it is asked again."
    )
