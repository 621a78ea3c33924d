"""The agent's side of the `GPUNode`: what the cluster is told before anything is put in force.

One task writes. Whoever grows or starts waits for it: all that wait are told of together, in a status that
is built from the ledger after the read whose version it is written over. A conflict begins that anew; no
answer means that it is not known whether it was written, and then nothing is put in force.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, ParamSpec, Protocol, TypeVar

import structlog

from gaia_plugin.agent.meters import NOBODY, Meter, writing
from gaia_plugin.agent.pods import status as statuses
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.ports import Untold
from gaia_plugin.agent.pods.status import Sample
from gaia_plugin.counted import Holder, Parts
from gaia_plugin.errors import Code, Fatal, Refusal, Unusable
from gaia_plugin.kube import gpunode, nodes
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import Condition, GpuNode, Status
from gaia_plugin.kube.reflector import Backoff
from gaia_plugin.kube.times import now_text
from gaia_plugin.ledger import SlotRecord

log = structlog.get_logger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

HEARTBEAT_SECONDS: Final = 30.0
"""Seconds between two reads of the object, each with a sign of life and what is in use by then."""

PATIENCE: Final = 8.0
"""Seconds that a grow or a start waits for the object to say it."""

SYNC_PAUSE: Final = 0.2
"""Seconds between two writes that nobody waits for, at the least."""

FAREWELL_SECONDS: Final = 2.0

_LASTING: Final = (nodes.NotInstalled, nodes.NoSuchNode)
"""What is missing until people do something; anything else that is gone was just deleted."""

Conditions = Callable[[], tuple[Condition, ...]]


class Desk(Protocol):
    """What the writer asks of the node."""

    core: PodCore

    async def do(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a step of the core, alone."""

    async def sample(self) -> Sample:
        """Measure what is in use; a driver that does not answer is not waited for long."""

    def touch(self, slot: str) -> None:
        """Tell that a slot has changed."""


async def get_gpunode(api: nodes.Writer, name: str, domain: str) -> GpuNode:
    """Return a node's object as the API server has it now, made if it is not there.

    Raises:
        NotInstalled: the API server does not know the kind.
        ApiError: refused, no answer, or `conflict`: somebody else has just made it.
    """
    node = await nodes.read(api, name, domain)
    if node is None:
        node = await nodes.create(api, name, await nodes.node_uid(api, name), domain)
        log.info("made the node's object", name=name)
    return node


async def put_status(api: nodes.Writer, node: GpuNode, status: Status, domain: str) -> GpuNode:
    """Write a status over the version of `node`, which it was built after; return the object as it is then.

    Raises:
        ApiError: `conflict` or `missing`: all over again; else it is not known whether it was written.
    """
    return await nodes.put_status(api, node, status, domain)


class _Waiter:
    """Somebody who waits until the object says what was booked for a slot; "" for no slot in particular."""

    def __init__(self, slot: str) -> None:
        self.slot = slot
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def refuse(self, refusal: Refusal) -> None:
        """Tell that it does not say so, and why."""
        if not self.told.done():
            self.told.set_exception(refusal)

    def done(self) -> None:
        """Tell that it does."""
        if not self.told.done():
            self.told.set_result(None)


class NodeWriter:
    """Keeps the status of a node's object true, and tells of grows and starts before they are in force.

    Args:
        desk: the node.
        api: the API server.
        reconciled: set when it is known what runs here; before, a status would hide what was lost.
        meter: is told of every write.
        clock: monotonic seconds.
        backoff: how failures are waited out.
    """

    def __init__(
        self,
        desk: Desk,
        api: nodes.Writer,
        reconciled: asyncio.Event,
        *,
        meter: Meter = NOBODY,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self._desk = desk
        self._api = api
        self._reconciled = reconciled
        self._meter = meter
        self._clock = clock
        self._backoff = backoff or Backoff(first=0.2, most=HEARTBEAT_SECONDS / 2)
        self._conflicts = Backoff(first=0.01, most=0.5)
        self._waiting: list[_Waiter] = []
        self._wake = asyncio.Event()
        self._changed = False
        self._beat_at = float("-inf")
        self._sample = Sample()
        self._node: GpuNode | None = None
        self._reserves = False
        self.patience = PATIENCE
        self.trouble = "The agent on this node has just started and has not reached the API server yet."
        """Why the object may not say what is; empty when it does."""
        self.promised_to: Mapping[str, str] = {}
        """namespace/name of the pods that have reservations, by UID, as the extender calls them."""
        self.conditions: Conditions = tuple
        """Asked for the conditions of every status; they must not change unless something has."""

    # -- those who wait

    async def announce(self, record: SlotRecord) -> None:
        """Return when the object says what is booked for a slot.

        Raises:
            Refusal: ``card_full`` beside the reservations. Then nothing may be put in force, and what was
                booked has to be given up.
            Untold: it cannot be said now; the same holds.
        """
        await self._wait(record.slot)

    async def refresh(self) -> bool:
        """Let the ledger know the reservations as they are now; return whether that may have made room."""
        if not self._reserves:
            return False
        try:
            await self._wait("")
        except Untold:
            return False
        return True

    async def _wait(self, slot: str) -> None:
        waiter = _Waiter(slot)
        self._waiting.append(waiter)
        self._wake.set()
        try:
            async with asyncio.timeout(self.patience):
                await waiter.told
        except TimeoutError:
            raise self._unavailable(self.trouble or "It is changed by others all the time.") from None
        finally:
            waiter.told.cancel()
            with suppress(ValueError):
                self._waiting.remove(waiter)

    @property
    def doubt(self) -> str:
        """Return why nothing starts or grows now, as far as the last write tells; empty: it does."""
        return self._unavailable(self.trouble).sentence if self.trouble else ""

    @staticmethod
    def _unavailable(why: str) -> Untold:
        return Untold(
            Code.UNAVAILABLE,
            "Nothing starts or grows on this node now, because its GPUNode object cannot be written; what "
            # the reason last: it may end in a command, which a full stop would spoil
            f"runs goes on, and what is made smaller is given back. {why}",
        )

    def touch(self) -> None:
        """Tell that the ledger, a card or a condition may have changed."""
        self._changed = True
        self._wake.set()

    # -- the task that writes

    async def run(self) -> None:
        """Write whenever there is reason to; never end.

        Raises:
            Fatal: the ledger is damaged.
        """
        await self._reconciled.wait()
        while True:
            pause = SYNC_PAUSE
            try:
                await self._round()
                self._note("")
                self._backoff.reset()
            except ApiError as error:
                self._note(_hinted(error))
                pause = self._backoff.next()
            except Fatal:
                raise
            except (Refusal, Unusable) as error:
                log.warning("status not built", why=str(error))
                pause = self._backoff.next()
            except Exception:
                log.exception("status not written")
                pause = self._backoff.next()
            await self._until_due(pause)

    def _note(self, why: str) -> None:
        if why and why != self.trouble:
            log.warning("the node's object is not written", why=why)
        if not why and self.trouble:
            log.info("the node's object is true")
        self.trouble = why

    async def _until_due(self, pause: float) -> None:
        """Return as soon as somebody waits; after `pause` if something changed or is overdue."""
        least = self._clock() + pause
        while not self._waiting:
            self._wake.clear()
            left = (least if self._changed else max(least, self._beat_at)) - self._clock()
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wake.wait()

    async def _round(self) -> None:
        """Bring the object up to date once; again after each conflict.

        Raises:
            ApiError, Refusal, Unusable: it was not; all who waited are told so.
        """
        due = self._clock() >= self._beat_at
        self._changed = False
        batch: list[_Waiter] = []
        try:
            rest = not (due or self._waiting or self.trouble)
            if rest and self._node is not None and await self._as_seen(self._node):
                return
            if due:
                self._sample = await self._desk.sample()
            while True:
                batch = [each for each in (*batch, *self._waiting) if not each.told.done()]
                self._waiting = []
                try:
                    await self._once(batch, due)
                    break
                except ApiError as error:
                    if not (error.conflict or error.missing) or isinstance(error, _LASTING):
                        raise
                    self.trouble = str(error)
                await asyncio.sleep(self._conflicts.next())
            self._conflicts.reset()
        except BaseException as error:
            self._changed = True
            why = self._unavailable(
                _hinted(error) if isinstance(error, ApiError) else "The agent's log says why."
            )
            for each in batch:
                each.refuse(why)
            raise
        if due:
            self._beat_at = self._clock() + HEARTBEAT_SECONDS

    async def _as_seen(self, node: GpuNode) -> bool:
        """Tell whether the object, as it was written last, says what the ledger has."""
        return statuses.same(await self._desk.do(self._built, node), node.status)

    async def _once(self, batch: list[_Waiter], due: bool) -> None:
        node = await get_gpunode(self._api, self._desk.core.node_name, self._desk.core.domain)
        slots = [each.slot for each in batch if each.slot and not each.told.done()]
        status, refused = await self._desk.do(self._plan, node, slots)
        self._reserves = bool(node.spec.reservations)
        self.promised_to = {each.uid: each.pod for each in node.spec.reservations if each.pod}
        for each in batch:
            if (refusal := refused.get(each.slot)) is not None:
                each.refuse(refusal)
                self._changed = True
                self._desk.touch(each.slot)
        announced = [each for each in batch if each.slot and not each.told.done()]
        # what was booked in vain falls in a moment: it need not be told first
        if announced or due or not (refused or statuses.same(status, node.status)):
            node = await self._put(node, status)
        self._node = node
        for each in batch:
            each.done()

    async def _put(self, node: GpuNode, status: Status) -> GpuNode:
        with writing(self._meter, "gpunode"):
            return await put_status(self._api, node, status, self._desk.core.domain)

    # -- steps of the core, each alone

    def _plan(self, node: GpuNode, waiting: Collection[str]) -> tuple[Status, Mapping[str, Refusal]]:
        """Take in the reservations, see for whom they leave no room, and build the status after that.

        Who is refused gives up what it has booked; by the time, another one may have booked for the slot.
        """
        ledger = self._desk.core.ledger
        reserved = gpunode.reserved(node.spec.reservations)
        ledger.set_reservations(reserved)
        refused = ledger.crowded_out(waiting)
        return self._status(reserved), refused

    def _built(self, node: GpuNode) -> Status:
        return self._status(gpunode.reserved(node.spec.reservations))

    def _status(self, reserved: Mapping[Holder, Parts], *, ready: bool = True) -> Status:
        return statuses.build(
            self._desk.core.facts(),
            reserved,
            ready=ready,
            heartbeat=now_text(),
            sample=self._sample,
            conditions=self.conditions(),
        )

    # -- the end

    async def farewell(self) -> None:
        """Say that nothing may be sent here any more; what cannot be said in a moment is left unsaid."""
        if self._node is None:
            return
        core = self._desk.core
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                node = await nodes.read(self._api, core.node_name, core.domain)
                if node is not None:
                    reserved = gpunode.reserved(node.spec.reservations)
                    status = await self._desk.do(self._status, reserved, ready=False)
                    await put_status(self._api, node, status, core.domain)
        except (ApiError, Refusal, Unusable, TimeoutError) as error:
            log.warning("the node's object still says ready", why=str(error) or "no answer in time")


def _hinted(error: ApiError) -> str:
    """Return what the API server said, with what to apply where the agent may do too little."""
    if error.status != HTTPStatus.FORBIDDEN:
        return str(error)
    return f"{error}. What an agent has to be allowed is in deploy/agent.yaml."
