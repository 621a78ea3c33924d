"""One node of a cluster: `LocalNode`, with slots that come from pods and end with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from gaia_plugin.agent.meters import NOBODY, Meter, timed
from gaia_plugin.agent.node import PATIENCE, LocalNode
from gaia_plugin.agent.pods import recover
from gaia_plugin.agent.pods.admit import Admission
from gaia_plugin.agent.pods.advertised import Advertiser, Lists
from gaia_plugin.agent.pods.core import FROM_PODS, PodCore
from gaia_plugin.agent.pods.desired import Desires
from gaia_plugin.agent.pods.explaining import explain_pod
from gaia_plugin.agent.pods.gpunode import NodeWriter
from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.machine import Confirmation, Machine
from gaia_plugin.agent.pods.news import ON_NODE, USER, News, asked_by
from gaia_plugin.agent.pods.placed import Order
from gaia_plugin.agent.pods.ports import Checkpoint, Server
from gaia_plugin.agent.pods.publish import Publisher
from gaia_plugin.agent.pods.resize import Resizing
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.agent.pods.status import Sample
from gaia_plugin.agent.pods.sweep import Sweep, finished
from gaia_plugin.agent.pods.watchdog import Watchdog
from gaia_plugin.agent.readings import Reader
from gaia_plugin.agent.settings import NO_ROOM_SECONDS
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.kube import nodes
from gaia_plugin.kube.gpunode import Condition
from gaia_plugin.kube.pods import cores_resource, memory_resource
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.metrics.snapshot import Watched
from gaia_plugin.placement import CardState
from gaia_plugin.shares import Share
from gaia_plugin.slots.members import ContainerMembers

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 8
_T = TypeVar("_T")

ADVERTISE_PAUSE: Final = 0.05
"""Seconds between two looks at what is advertised, however much changes."""

LEAVING_SECONDS: Final = 30.0
"""Seconds in which a slot that is being given back counts as free already for the kubelet."""

SWEEP_EVERY: Final = 5.0
"""Seconds after which the ledger is compared with the pods although none has changed."""

DESIRE_EVERY: Final = 5.0
"""Seconds after which annotations are looked at for sizes although nothing has changed."""

PUBLISH_EVERY: Final = 5.0
"""Seconds after which annotations are compared with the ledger although nothing was made."""


class PodNode(LocalNode):
    """Implements `gaia_plugin.deviceplugin.plugin.Handler` for both resources.

    Args:
        core, reader, work, asking, meter: as for `LocalNode`.
        sight: the pods of this node.
        checkpoint: the kubelet's record of devices.
        server: the API server.
        api: where the node's object is; None: nobody is told what is in force.
        no_room_seconds: see `Admission`.
        evict_unmanaged: see `Watchdog`.
        machine: this one, to be compared with the node.
        clock: monotonic seconds.
    """

    core: PodCore
    slot_socket_mode = 0o666

    def __init__(
        self,
        core: PodCore,
        reader: Reader,
        work: ThreadPoolExecutor,
        asking: ThreadPoolExecutor,
        *,
        sight: Sight,
        checkpoint: Checkpoint,
        server: Server,
        machine: Machine,
        api: nodes.Writer | None = None,
        clock: Callable[[], float] = time.monotonic,
        no_room_seconds: float = NO_ROOM_SECONDS,
        meter: Meter = NOBODY,
        evict_unmanaged: bool = False,
    ) -> None:
        super().__init__(core, reader, work, asking, meter=meter)
        self.core = core
        self.sight = sight
        self.watchdog: Watchdog | None = None
        if isinstance(members := core.directories.members, ContainerMembers):
            members.names = sight.containers
            self.watchdog = Watchdog(self, members, sight, server, evict=evict_unmanaged, clock=clock)
            self.watchdog.on_change = self.advertise
        self.admission = Admission(self, sight, checkpoint, server, self._announce, clock, no_room_seconds)
        self.writer = None
        if api is not None:
            self.writer = NodeWriter(self, api, self.admission.reconciled, meter=meter, clock=clock)
            self.writer.conditions = self.conditions
        self.news = News(sight, server)
        self.resizing = Resizing(self, self.writer, self.news.resized)
        self.desires = Desires(self, sight, server, clock)
        self.confirmation = Confirmation(server, core.node_name, machine, clock)
        self.sweep = Sweep(self, sight, server, checkpoint, clock)
        self.publisher = Publisher(sight, server, core.node_name, core.domain, clock)
        self._publish_wanted = asyncio.Event()
        self._advertiser = Advertiser(memory_resource(core.domain), cores_resource(core.domain))
        self._advertised: Lists | None = None
        self._advertising: asyncio.Task[None] | None = None
        self._list_stale = False
        self._listing = asyncio.Lock()
        self._leaving: dict[str, float] = {}
        self.leaving_seconds = LEAVING_SECONDS
        self.on_devices: Callable[[Lists], None] = lambda _: None
        """Called with the devices to advertise whenever they may have changed."""

    async def open(self) -> None:
        """Serve the slots that are known, then the operator socket; learn from the kubelet's record."""
        try:
            await self.admission.read_checkpoint()
        except Refusal as refusal:
            log.warning("the kubelet's record is not readable yet", why=refusal.sentence)
        await super().open()
        await self.advertise_now()

    async def close(self) -> None:
        """Close every socket; slots and what is in force stay as they are."""
        self.sight.end()
        if self.watchdog is not None:
            await self.watchdog.close()
        await self.resizing.close()
        await self.news.close()
        await self.admission.close()
        if self.writer is not None:
            await self.writer.farewell()
        await super().close()

    # -- the kubelet's calls

    def allocate(self, resource: str, ids: frozenset[str]) -> str:
        """Answer with a name that never was and never will be again; book nothing."""
        row = self.core.allocations.draw(resource, ids)
        self.meter.allocated()
        self.advertise()  # what was just taken may be what was about to be called sick
        return f"{self.core.domain}/slot={row.name}"

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        """Give the container its slot, or refuse with a sentence for the pod's events."""
        try:
            with timed(self.meter.prestart):
                await self.admission.prestart(resource, ids)
        except Refusal as refusal:
            self.meter.refused(refusal.code)
            log.info("not started", resource=resource, why=refusal.sentence, **self._whose(resource, ids))
            raise

    def _whose(self, resource: str, ids: frozenset[str]) -> dict[str, str]:
        """Return pod and container that hold these devices, as far as they are known."""
        row = next((row for row in self.core.allocations.by_ids(resource, ids) if row.bound), None)
        if row is None:
            return {}
        pod = self.sight.pod(row.uid)
        return {"pod": row.uid if pod is None else pod.title, "container": row.container}

    def advertise(self) -> None:
        """Bring the list of devices and the node's object up to date soon; many calls at once are one."""
        if self.writer is not None:
            self.writer.touch()
        self._list_stale = True
        if self._advertising is None or self._advertising.done():
            self._advertising = self._spawn(self._advertise_while_stale())

    async def _advertise_while_stale(self) -> None:
        while self._list_stale:
            self._list_stale = False
            try:
                await self.advertise_now()
            except (Refusal, Unusable) as error:
                log.warning("devices not advertised", why=str(error))  # the next sweep asks again
            await asyncio.sleep(ADVERTISE_PAUSE)

    async def advertise_now(self) -> None:
        """Bring the list of devices up to date; nothing is made anew where nothing has changed."""
        async with self._listing:  # what was read later must not be overtaken
            slots = await self.do(self.core.ledger.slots_as_told)
            now, leaving = time.monotonic(), {record.slot for record in slots if self._ends(record)}
            self._leaving = {slot: self._leaving.get(slot, now) for slot in leaving}
            rows, cards = self.core.allocations.all(), self.core.cards
            gone = finished(rows, self.sight.life)
            rows = [row for row in rows if row.uid not in gone]
            owners = {Owner(row.uid, row.container) for row in rows if row.bound}
            ended = {owner for owner in owners if self.sight.life(owner) is Life.ENDED}
            # thousands of devices take milliseconds, in which an Allocate would wait
            counted = [record for record in slots if not self._leaves(record)]
            well = {card.uuid for card in cards if card.healthy}
            foreign = sum(units for card, units in self.core.ledger.foreign().items() if card in well)
            lists = await asyncio.to_thread(self._advertiser.lists, cards, rows, counted, ended, foreign)
            if lists is not self._advertised:
                self._advertised = lists
                self.on_devices(lists)

    def _ends(self, record: SlotRecord) -> bool:
        return record.releasing or self.sight.life(Owner(record.owner, record.name)) is Life.ENDED

    def _leaves(self, record: SlotRecord) -> bool:
        """Tell whether a slot will be free in a moment.

        `PreStartContainer` can wait for that moment; at devices that are not healthy the kubelet fails
        the next pod for good.
        """
        since = self._leaving.get(record.slot)
        return since is not None and time.monotonic() - since < self.leaving_seconds

    # -- what admission, sweep and recovery do

    async def reserve(self, order: Order) -> SlotRecord:
        """Book an order; a refusal for want of room counts only by reservations that were just read."""
        try:
            return await self.do(self.core.reserve, order)
        except Refusal as refusal:
            if self.writer is None or refusal.code is not Code.CARD_FULL or not await self.writer.refresh():
                raise
        return await self.do(self.core.reserve, order)

    async def _announce(self, record: SlotRecord) -> None:
        if self.writer is not None:
            await self.writer.announce(record)

    async def write_object(self) -> None:
        """Keep the node's object true, until the node ends.

        Raises:
            Fatal: the ledger is damaged.
        """
        if self.writer is not None:
            await self.writer.run()

    async def sample(self) -> Sample:
        """Measure what is in use; a driver that does not answer is not waited for long."""
        used: dict[str, int] = {}
        with suppress(TimeoutError, Refusal, Unusable):
            async with asyncio.timeout(PATIENCE):
                uuids = [card.uuid for card in self.core.cards if card.healthy]
                used = await self.ask(self.reader.used, uuids)
        return Sample(used, await self.do(self.core.slot_use))

    async def put_in_force(self, slot: str) -> frozenset[str]:
        """Commit a slot's target, write page and specs, serve its socket; return the names that resolve."""
        record, names = await self.do(self.core.put_in_force, slot)
        await self._attend(record)
        self.advertise()
        log.info("made", slot=slot, pod=record.label, units=record.target.units, cores=record.target.cores)
        return names

    def busy(self, owner: Owner) -> bool:
        """Tell whether a container is seen to at the moment."""
        return self.admission.busy(owner)

    async def take_back(self, slot: str) -> None:
        """Strike out what was reserved and never in force."""
        await self.do(self.core.take_back, slot)

    async def find(self, owner: Owner) -> SlotRecord | None:
        """Return a container's slot."""
        return await self.do(self.core.find, owner)

    async def secure(self, record: SlotRecord) -> frozenset[str]:
        """Make sure of directory, page, specs and socket; return the names that resolve."""
        names = await self.do(self.core.secure, record)
        await self._attend(record)
        return names

    async def renew_usage(self, slot: str) -> None:
        """Clear what the last container of a slot claimed."""
        await self.do(self.core.renew_usage, slot)

    async def records(self) -> list[SlotRecord]:
        """Return all slots."""
        return await self.do(self.core.ledger.slots)

    async def states(self) -> list[CardState]:
        """Return the cards as placement sees them."""
        return await self.do(self.core.ledger.states)

    async def adopt(self, record: SlotRecord, why: str) -> None:
        """Enter a slot whose container runs."""
        await self._attend(await self.do(self.core.adopt, record, why))

    async def amend(self, slot: str, label: str, most: Share) -> None:
        """Complete a slot that was entered without its pod."""
        await self.do(self.core.ledger.amend, slot, label, most)

    async def cards_in_spec(self, owner: Owner) -> list[str]:
        """Return the cards that a container's CDI spec names."""
        return await self.do(self.core.cards_in_spec, owner)

    async def release_all(self, records: Sequence[SlotRecord]) -> None:
        """Begin the release of slots; what they held goes back by `drain_all`."""
        for few in _few(records):
            for record in few:
                log.info("container ended", slot=record.slot, pod=record.label)
            await self.do(self.core.release_all, few)
            for record in few:
                self.touch(record.slot)
            self.drain_wanted.set()

    async def drain_all(self) -> None:
        """Give back what draining slots no longer use, some at a time; waits while none drains."""
        await self.drain_wanted.wait()
        await self.drain_unsettled(_AT_ONCE)

    async def _remove(self, slot: str) -> None:
        await super()._remove(slot)
        self.sight.changed.set()  # its pod's names can be forgotten now

    async def forget(self, uids: Iterable[str]) -> None:
        """Forget the allocations of pods that are gone and hold nothing."""
        if uids:
            await self.do(self.core.forget, uids)

    def changed(self) -> None:
        """Note that a pod was given something: its annotation may have to say so."""
        self._publish_wanted.set()

    def touch(self, slot: str) -> None:
        """Wake whoever waits for a change of the slot, and for room; tell the kubelet what is free."""
        super().touch(slot)
        self.desires.wanted.set()
        self.admission.room()
        self.advertise()

    # -- by itself

    async def reconcile(self) -> None:
        """Enter what runs and is not known; from then on new slots are made, and ended ones given back.

        Raises:
            Fatal: this node is not in the cluster.
        """
        await self.sight.wait_synced()
        if self.admission.reconciled.is_set():
            return
        confirmed = await self.confirmation.done()
        self.admission.doubt = self.confirmation.why
        if not confirmed:
            return
        await recover.reconcile(self, self.sight)
        await self.do(self.core.tidy_specs)
        if self.watchdog is not None:
            await self.watchdog.first()
        self.admission.reconciled.set()
        self.sight.changed.set()
        self._publish_wanted.set()
        log.info("it is known what runs here")

    async def sweep_once(self) -> None:
        """Give back what ended as soon as pods change, else now and then; look at the list of devices."""
        await _either(self.sight.changed, SWEEP_EVERY)
        await self.sweep_now()

    async def sweep_now(self) -> None:
        """Give back what has ended by now, and bring the list of devices up to date."""
        if self.admission.reconciled.is_set():
            await self.sweep.round()
            self.admission.forget(lambda uid: self.sight.pod(uid) is not None)
            self.desires.wanted.set()
        self.advertise()

    async def watch_once(self) -> None:
        """Look for what slips past the library, as soon as it is known what runs."""
        if self.watchdog is not None and self.admission.reconciled.is_set():
            await self.watchdog.round()

    def conditions(self) -> tuple[Condition, ...]:
        """Return what is to be known of the node as a whole."""
        return () if self.watchdog is None else self.watchdog.conditions()

    def watched(self) -> Watched:
        """Return what the watchdog has found, for metrics."""
        return Watched() if self.watchdog is None else self.watchdog.watched()

    def more_room(self) -> None:
        """Tell whoever waits for room, the kubelet and the cluster that a card has more or less of it."""
        self.admission.room()
        self.advertise()

    async def publish_once(self) -> None:
        """Write back where pods were placed, as soon as there is reason to, else now and then."""
        await _either(self._publish_wanted, PUBLISH_EVERY)
        if not self.sight.synced:
            return
        settled = await self.publisher.publish(await self.do(self.core.placements))
        if not settled:
            self._publish_wanted.set()

    async def desire_once(self) -> None:
        """Carry out what operators ask for by annotations, as soon as there is reason to look."""
        await _either(self.desires.wanted, DESIRE_EVERY)
        if self.admission.reconciled.is_set():
            await self.desires.round()

    async def tidy_once(self) -> None:
        """Clear away what nobody needs, and what was written into its file proper."""
        if self.admission.reconciled.is_set():
            await self.sweep.tidy()
            await self.do(self.core.tidy_specs)
            await self.do(self.core.tidy_directories)
        for tidy in (self.core.allocations.tidy, self.core.ledger.tidy):
            await asyncio.to_thread(tidy)

    # -- the API

    def _app(self, slot: str | None = None) -> ASGIApp:
        app, who = super()._app(slot), ON_NODE if slot is None else USER

        async def said(scope: Scope, receive: Receive, send: Send) -> None:
            asked_by.set(who)  # of this request alone: each has a task of its own
            await app(scope, receive, send)

        return said

    async def _change(self, slot: str, wish: models.Resize, generation: int | None) -> SlotRecord:
        """Put a slot's new amounts in force; the cluster is told first of what is more."""
        return await self.resizing.resize(slot, wish, generation)

    async def make(self, wish: models.NewSlot) -> models.MadeSlot:
        """Refuse: slots come from pods."""
        raise Refusal(Code.BAD_REQUEST, FROM_PODS)

    async def release(self, slot: str) -> models.Slot:
        """Refuse: slots end with their pods."""
        raise Refusal(Code.BAD_REQUEST, FROM_PODS)

    async def own(self, slot: str, owner: models.Owner) -> models.Slot:
        """Refuse: slots belong to pods."""
        raise Refusal(Code.BAD_REQUEST, FROM_PODS)

    async def explain(self, pod: str) -> models.Explained:
        """Tell of a pod (namespace/name) what it asks for, what it has, and why it has no more."""
        return await explain_pod(self, pod)


def _few(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Yield some items at a time, so that starts come in between."""
    for begin in range(0, len(items), _AT_ONCE):
        yield items[begin : begin + _AT_ONCE]


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, which is cleared, or after `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()
