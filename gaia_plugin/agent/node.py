"""The node behind the API: what `core` decides, with the sockets, processes and waits around it.

Two threads stand behind the event loop. One runs everything that touches ledger and pages, so that
each step is alone; one asks the driver, which may be slow, and holds nobody up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import structlog
from starlette.types import ASGIApp

from gaia_plugin import __version__, paths
from gaia_plugin.agent.core import Core
from gaia_plugin.agent.meters import NOBODY, Meter, timed
from gaia_plugin.agent.readings import Reader
from gaia_plugin.api import models
from gaia_plugin.api.app import make_app
from gaia_plugin.api.serve import Served, serve
from gaia_plugin.errors import Code, Fatal, Refusal
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.slots.processes import Watch

log = structlog.get_logger(__name__)
PATIENCE: Final = 1.0
"""Seconds that an answer waits for a slow driver."""
LAST_ANSWERS: Final = 30.0
"""Seconds in which what was asked of a slot before it was gone is still answered."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LocalNode:
    """One machine without Kubernetes. Implements `gaia_plugin.api.node.Node`.

    Args:
        core: ledger and pages; only ever called in `work`.
        reader: what the driver says; only ever called in `asking`.
        meter: is told what happens.
    """

    slot_socket_mode = 0o600

    def __init__(
        self,
        core: Core,
        reader: Reader,
        work: ThreadPoolExecutor,
        asking: ThreadPoolExecutor,
        *,
        meter: Meter = NOBODY,
    ) -> None:
        self.core = core
        self.reader = reader
        self.meter = meter
        self._work = work
        self._asking = asking
        self._served: dict[str, Served] = {}
        self._operator: Served | None = None
        self._changes: dict[str, asyncio.Event] = {}
        self._watches: dict[str, Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._used: dict[str, int] = {}
        self.drain_wanted = asyncio.Event()

    async def do(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a step of `core`, alone."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._work, lambda: step(*args, **kwargs))

    async def ask(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Ask the driver something."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._asking, lambda: step(*args, **kwargs))

    # -- beginning and end

    async def open(self) -> None:
        """Serve the slots that the ledger knows, then the operator socket."""
        for record in await self.do(self.core.recover):
            try:
                await self._attend(record)
            except OSError as error:
                # a full disk must not keep the other slots from being served
                log.warning("socket not made", slot=record.slot, why=str(error))
        self._operator = await serve(self._app(), paths.operator_socket(self.core.state), limited=False)
        self.drain_wanted.set()

    async def close(self) -> None:
        """Close every socket; slots and what is in force stay as they are."""
        for slot in list(self._watches):
            self._unwatch(slot)
        for task in list(self._tasks):
            task.cancel()
        for served in [*self._served.values(), *([self._operator] if self._operator else [])]:
            await served.close()
        self._served.clear()

    @property
    def connections(self) -> int:
        """How many clients are connected, over all sockets."""
        served = [*self._served.values(), *([self._operator] if self._operator else [])]
        return sum(each.connections for each in served)

    def _app(self, slot: str | None = None) -> ASGIApp:
        return make_app(self, slot, refused=self.meter.refused)

    async def _attend(self, record: SlotRecord) -> None:
        """Serve the slot's socket and watch its process."""
        path = self.core.directory(record.slot) / paths.SLOT_SOCKET
        if record.slot not in self._served:
            app, mode = self._app(record.slot), self.slot_socket_mode
            self._served[record.slot] = await serve(app, path, limited=True, mode=mode)
        self._watch(record)

    def _watch(self, record: SlotRecord) -> None:
        self._unwatch(record.slot)
        if record.process is None or record.process_start is None or record.releasing:
            return
        ended = partial(self._ended, record)
        self._watches[record.slot] = Watch(record.process, record.process_start, ended)

    def _unwatch(self, slot: str) -> None:
        watch = self._watches.pop(slot, None)
        if watch is not None:
            watch.close()

    def _ended(self, record: SlotRecord) -> None:
        """Release a slot whose process has ended."""
        log.info("process ended", slot=record.slot, pid=record.process)
        self._watches.pop(record.slot, None)
        self._spawn(self.release_quietly(record))

    async def release_quietly(self, record: SlotRecord) -> None:
        """Release exactly this slot, for nobody in particular."""
        try:
            await self._release(record.slot, record.created)
        except Refusal as refusal:
            log.info("not released", slot=record.slot, why=refusal.sentence)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def touch(self, slot: str) -> None:
        """Wake whoever waits for a change of the slot."""
        event = self._changes.pop(slot, None)
        if event is not None:
            event.set()

    # -- the API

    async def health(self) -> models.Health:
        """Return who this is."""
        slots = await self.do(self.core.ledger.slots)
        return models.Health(
            pid=os.getpid(),
            version=__version__,
            driver=str(self.core.driver),
            state=str(self.core.state),
            slots=len(slots),
        )

    async def cards(self) -> tuple[models.CardView, ...]:
        """Return the cards."""
        known = await self.do(self.core.ledger.cards)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                uuids = [card.uuid for card in known if card.healthy]
                self._used = await self.ask(self.reader.used, uuids)
        return await self.do(self.core.card_views, self._used)

    async def slots(self) -> tuple[models.Slot, ...]:
        """Return all slots, oldest first."""
        return await self.do(self.core.slot_views)

    async def slot(self, slot: str) -> models.Slot:
        """Return one slot."""
        return await self.do(self.core.slot_view, slot)

    async def make(self, wish: models.NewSlot) -> models.MadeSlot:
        """Make a slot."""
        record = await self.do(self.core.make, wish)
        try:
            await self._attend(record)
        except OSError as error:
            await self.release_quietly(record)
            raise Refusal(Code.UNAVAILABLE, f"The slot's socket cannot be made: {error.strerror}.") from error
        log.info("made", slot=record.slot, units=record.target.units, cores=record.target.cores)
        return models.MadeSlot(
            slot=await self.slot(record.slot),
            directory=str(self.core.directory(record.slot)),
            environment=self.core.environment(record),
        )

    async def resize(self, slot: str, wish: models.Resize, generation: int | None) -> models.Resized:
        """Set a slot's amounts; what is free at once goes back before the answer."""
        with timed(self.meter.resized):
            record = await self._change(slot, wish, generation)
        self.touch(slot)
        log.debug("resized", slot=slot, units=record.target.units, cores=record.target.cores)
        if record.draining:
            self.drain_wanted.set()
            await self._drain_soon(slot)
        view = await self.slot(slot)
        return models.Resized(state=view.state, message=view.message, slot=view)

    async def _change(self, slot: str, wish: models.Resize, generation: int | None) -> SlotRecord:
        """Put a slot's new amounts in force."""
        return await self.do(self.core.resize, slot, wish, generation)

    async def release(self, slot: str) -> models.Slot:
        """Shrink a slot to nothing; it is gone when nothing of it is in use any more."""
        return await self._release(slot, None)

    async def _release(self, slot: str, created: float | None) -> models.Slot:
        record = await self.do(self.core.release, slot, created)
        self._unwatch(slot)
        self.touch(slot)
        self.drain_wanted.set()
        view = await self.slot(record.slot)
        await self._drain_soon(slot)
        with suppress(Refusal):
            return await self.slot(slot)
        return view

    async def own(self, slot: str, owner: models.Owner) -> models.Slot:
        """Give the slot to a process."""
        self._watch(await self.do(self.core.own, slot, owner.process))
        return await self.slot(slot)

    async def fit(self, wishes: Sequence[models.NewSlot]) -> tuple[models.Fit, ...]:
        """Tell for each wish whether it could start now."""
        return await self.do(self.core.fit, wishes)

    async def explain(self, pod: str) -> models.Explained:
        """Refuse: there are no pods on a machine without Kubernetes."""
        raise Refusal(
            Code.NO_SUCH_SLOT,
            f"This machine is no node of a cluster and has no pod {pod}; `gaia slots` lists its slots.",
        )

    async def wait_for_change(self, slot: str, timeout: float) -> None:
        """Return when the slot may have changed, at the latest after `timeout` seconds."""
        event = self._changes.setdefault(slot, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await event.wait()

    # -- what goes back

    async def _drain_soon(self, slot: str) -> None:
        """Drain before an answer, unless the driver is slow; the loop goes on with it then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self.drain(slot)

    async def drain_unsettled(self, at_once: int) -> None:
        """Drain every slot that has to; clears `drain_wanted` when none is left.

        One slot's fault is logged and holds none of the others up; it is tried again.

        Raises:
            Fatal: the process has to end.
        """
        self.drain_wanted.clear()
        wanted = True  # unless it is known that nothing is left: a signal that is lost is lost for ever
        try:
            left = await self.do(self.core.unsettled)
            for begin in range(0, len(left), at_once):
                few = left[begin : begin + at_once]
                results = await asyncio.gather(*map(self.drain, few), return_exceptions=True)
                for slot, fault in zip(few, results, strict=True):
                    if isinstance(fault, Fatal):
                        raise fault
                    if fault is not None:
                        log.warning("not drained", slot=slot, why=str(fault) or repr(fault))
            wanted = bool(left)
        finally:
            if wanted:
                self.drain_wanted.set()

    async def drain(self, slot: str) -> None:
        """Give back what the slot no longer uses; remove it when it is released and holds nothing.

        The order is the point: the limit was stored, then the announced sums are read, and only
        then two readings of the driver begin (docs/design, "shrink").
        """
        try:
            claim = await self.do(self.core.claim, slot)
            if claim is None:
                return
            # a driver may answer the first from a sample that it took before we asked
            await self.ask(self.reader.use, claim)
            reading, living = await self.ask(self.reader.use, claim)
            record = await self.do(self.core.settle, claim, reading, living)
        except Refusal as refusal:
            if refusal.code not in (Code.NO_SUCH_SLOT, Code.STALE):
                log.warning("not drained", slot=slot, why=refusal.sentence)
            return
        if record is None:
            return
        self.touch(slot)
        if record.releasing and not record.held.units and not record.held.cores:
            await self._remove(slot)

    async def _remove(self, slot: str) -> None:
        served = self._served.pop(slot, None)
        if served is not None:
            served.stop_listening()
        try:
            await self.do(self.core.remove, slot)
        except Refusal as refusal:
            if refusal.code is not Code.NO_SUCH_SLOT:  # else another drain was faster, and has said so
                log.info("not removed", slot=slot, why=refusal.sentence)
        except OSError as error:
            log.warning("removed; its directory is cleared away later", slot=slot, why=str(error))
        else:
            log.info("removed", slot=slot)
        self.touch(slot)
        if served is not None:
            # not from within one of its own requests, which is waiting for this
            self._spawn(served.finish(LAST_ANSWERS))
