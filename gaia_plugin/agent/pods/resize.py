"""A slot of a pod changes its size: what is more is announced to the cluster before it is in force.

Booked (`Ledger.hold`), announced (`put_status`), committed (`Ledger.commit`), then the page. What fails in
between gives the booking up, and it falls as after a shrink. What is only less is in force at once, whether
the API server is there or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

import structlog

from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import SlotRecord

log = structlog.get_logger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Desk(Protocol):
    """What a resize asks of the node."""

    core: PodCore
    drain_wanted: asyncio.Event

    async def do(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a step of the core, alone."""


class Announcer(Protocol):
    """Who tells the cluster; see `NodeWriter`."""

    async def announce(self, record: SlotRecord) -> None:
        """Return when the cluster knows what is booked for a slot."""

    async def refresh(self) -> bool:
        """Let the ledger know the reservations as they are now; return whether that may have made room."""


class Resizing:
    """Changes sizes, each slot's one grow after the other.

    A shrink waits for nothing: it makes a grow of its slot void that is still under way.

    Args:
        desk: the node.
        announcer: who tells the cluster; None: there is none to tell.
        done: called with the slot before and after each change that is in force.
    """

    def __init__(
        self,
        desk: Desk,
        announcer: Announcer | None,
        done: Callable[[SlotRecord, SlotRecord], None] = lambda *_: None,
    ) -> None:
        self._desk = desk
        self._announcer = announcer
        self._done = done
        self._growing: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[SlotRecord]] = set()

    async def resize(self, slot: str, wish: models.Resize, generation: int | None) -> SlotRecord:
        """Bring a slot to another size; return it as it stands then.

        Whoever gives up waiting for this leaves nothing half made.

        Raises:
            Refusal: as `Ledger.resize`; ``stale``: changed by another request meanwhile; ``unavailable``.
        """
        task = asyncio.get_running_loop().create_task(self._resize(slot, wish, generation))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[SlotRecord]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that a request that was given up leaves no complaint

    async def close(self) -> None:
        """End what is under way; what is in force stays."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _resize(self, slot: str, wish: models.Resize, generation: int | None) -> SlotRecord:
        before, after, booked = await self._begin(slot, wish, generation)
        if booked:
            mine = self._growing[slot] = asyncio.get_running_loop().create_future()
            try:
                after = await self._grow(after)
            finally:
                if self._growing.get(slot) is mine:  # after a shrink the next one does not wait
                    del self._growing[slot]
                mine.set_result(None)
        if after.generation != before.generation:
            self._done(before, after)
        return after

    async def _begin(
        self, slot: str, wish: models.Resize, generation: int | None
    ) -> tuple[SlotRecord, SlotRecord, bool]:
        """Book or put in force; a refusal for want of room counts only by reservations just read."""
        begin = self._desk.core.begin_resize
        fresh = False
        while True:
            try:
                return await self._desk.do(begin, slot, wish, generation)
            except Refusal as refusal:
                if (other := self._growing.get(slot)) is not None and refusal.code is Code.UNAVAILABLE:
                    await asyncio.shield(other)
                    continue
                if fresh or refusal.code is not Code.CARD_FULL or self._announcer is None:
                    raise
                if not await self._announcer.refresh():
                    raise
                fresh = True

    async def _grow(self, booked: SlotRecord) -> SlotRecord:
        slot = booked.slot
        try:
            if self._announcer is not None:
                await self._announcer.announce(booked)
        except BaseException as error:
            log.info("not grown", slot=slot, pod=booked.label, why=str(error))
            await self._give_up(booked)
            raise
        try:
            return await self._desk.do(self._desk.core.finish_grow, booked)
        except Refusal as refusal:
            self._desk.drain_wanted.set()
            if refusal.code is not Code.STALE:
                raise
            raise Refusal(
                Code.STALE,
                "Another request changed this slot while it was to grow, and that one is in force. Look at "
                "it again and repeat the request.",
            ) from refusal

    async def _give_up(self, booked: SlotRecord) -> None:
        await asyncio.shield(_quietly(self._desk.do(self._desk.core.give_up, booked)))
        self._desk.drain_wanted.set()


async def _quietly(work: Awaitable[None]) -> None:
    try:
        await work
    except Refusal as refusal:
        log.warning("booked in vain", why=refusal.sentence)
