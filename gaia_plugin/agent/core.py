"""What the agent does to ledger and pages. Every method is one step and runs alone, in one thread.

The order within a step is always: ledger first, page second. A crash in between leaves a ledger
that books at least what the page allows, and recovery puts page := target.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from gaia_plugin import paths
from gaia_plugin.agent import wishes
from gaia_plugin.agent.compute import Compute
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.agent.readings import Claim, Inventory
from gaia_plugin.agent.usage import Accounts
from gaia_plugin.agent.views import Measured, Room, amounts, card_view, slot_view
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.gpu import Topology
from gaia_plugin.ledger import CardCapacity, Ledger, SlotRecord
from gaia_plugin.placement import CardState, Request, Slice, place
from gaia_plugin.shares import NOTHING
from gaia_plugin.slots import pages
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.draining import use_by_card
from gaia_plugin.slots.names import slot_name
from gaia_plugin.slots.processes import start_time

log = structlog.get_logger(__name__)

UNCLAIMED_SECONDS: Final = 60.0
"""A slot that was made without a process is released after this, unless a process was named."""

BEAT_EVERY: Final = 1.0
"""Seconds between two signs of life in a page; a library that sees none for 5 s falls back."""


class Core:
    """Ledger, pages and what is known of usage.

    Args:
        state: the state directory, locked by this process.
        driver: the directory of the driver's libraries.
        inventory: the cards.
        ledger: opened.
        directories: of the slots.
        context: bytes that a context costs, see `contexts`.
        gauge: who is asked for processes' use of the cards; None: nobody.
    """

    def __init__(
        self,
        state: Path,
        driver: Path,
        inventory: Inventory,
        ledger: Ledger,
        directories: SlotDirectories,
        context: int,
        gauge: Gauge | None = None,
    ) -> None:
        self.state = state
        self.driver = driver
        self.ledger = ledger
        self.directories = directories
        self.accounts = Accounts(directories, context)
        self.compute = Compute(directories, gauge)
        self._topology = Topology()
        self._unstored: set[str] = set()
        self._sightings: dict[str, int] = {}
        self._seen: list[SlotRecord] = []
        self._served: list[SlotRecord] = []
        self._clock = time.monotonic
        self._beat_at = float("-inf")
        self.sync(inventory)

    def close(self) -> None:
        """Close ledger and pages; limits stay in force, and of compute every slot's guarantee."""
        try:
            self.compute.leave(self.ledger.slots())
        except (Refusal, Unusable) as error:
            log.warning("rates not put back", why=str(error))
        self.directories.close()
        self.ledger.close()

    def sync(self, inventory: Inventory) -> None:
        """Tell the ledger which cards there are."""
        self.ledger.set_cards(inventory.cards)
        self._topology = inventory.topology
        self._troubles = inventory.troubles

    def recover(self) -> list[SlotRecord]:
        """Put page := target for every slot, and remove directories that no slot has."""
        records = self.ledger.slots()
        for left in set(self.directories.slots()) - {record.slot for record in records}:
            log.info("removing what is left of a slot", slot=left)
            try:
                self.directories.remove(left)
            except Refusal:
                log.warning("not a slot's directory", name=left)
        for record in records:
            try:
                self.directories.create(record, self.ledger.cards(), self.driver)
            except (OSError, Unusable) as error:
                log.warning("not stored", slot=record.slot, why=str(error))
                self._unstored.add(record.slot)
        return records

    def directory(self, slot: str) -> Path:
        """Return the slot's directory."""
        return self.directories.path(slot)

    def environment(self, record: SlotRecord) -> dict[str, str]:
        """Return what a process of the slot is started with. No variable carries a limit."""
        directory = self.directory(record.slot)
        return {
            "LD_LIBRARY_PATH": str(directory / "lib"),
            "GAIA_SLOT_SOCKET": str(directory / paths.SLOT_SOCKET),
            "CUDA_VISIBLE_DEVICES": ",".join(part.card for part in record.slices),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        }

    # -- views

    def _room(self) -> Room:
        return Room({card.uuid: card for card in self.ledger.cards()}, self.ledger.free())

    def slot_view(self, slot: str) -> models.Slot:
        """Return one slot as the API shows it."""
        record = self.ledger.slot(slot)
        return slot_view(record, self._room(), self.ledger.could_reach(slot), self._measured(record))

    def slot_views(self) -> tuple[models.Slot, ...]:
        """Return all slots as the API shows them."""
        room = self._room()
        return tuple(
            slot_view(record, room, self.ledger.could_reach(record.slot), self._measured(record))
            for record in self.ledger.slots()
        )

    def _measured(self, record: SlotRecord) -> Measured:
        return replace(self.accounts.measured(record), time=self.compute.measured(record))

    def card_views(self, used: dict[str, int]) -> tuple[models.CardView, ...]:
        """Return the cards as the API shows them; `used` in bytes by UUID."""
        room, slots = self._room(), self.ledger.slots()
        return tuple(
            card_view(
                card, room.free.get(uuid, NOTHING), used.get(uuid, 0), slots, self._troubles.get(uuid, "")
            )
            for uuid, card in room.cards.items()
        )

    # -- making

    def make(self, wish: models.NewSlot) -> SlotRecord:
        """Grant a slot and make its directory; if that fails, nothing stays granted."""
        request = wishes.request_of(wish)
        slot = slot_name(wish.owner, wish.name)
        start = None if wish.process is None else _start_of(wish.process)
        cards = self.ledger.cards()
        record = self.ledger.grant(
            slot, wish.owner, wish.name, self._chooser(request),
            wishes.maximum_of(wish, request, cards), wish.compute, wish.process, start,
        )  # fmt: skip
        try:
            self.directories.create(record, cards, self.driver)
        except (OSError, Unusable) as error:
            self._take_back(slot)
            raise Refusal(Code.UNAVAILABLE, f"The slot's directory cannot be made: {error}") from error
        return record

    def _chooser(self, request: Request) -> _Chooser:
        return _Chooser(request, self._topology)

    def _take_back(self, slot: str) -> None:
        """Undo a grant that nobody was told of; no process can have used it."""
        record = self.ledger.release(slot)
        self.ledger.settle(slot, record.generation, {part.card: 0 for part in record.slices})
        self.ledger.remove(slot)
        self.directories.remove(slot)

    def fit(self, asked: Sequence[models.NewSlot]) -> tuple[models.Fit, ...]:
        """Tell for each wish whether it could start now, each as if it were the only one."""
        states, cards = self.ledger.states(), self.ledger.cards()
        return tuple(self._fit(wish, states, cards) for wish in asked)

    def _fit(self, wish: models.NewSlot, states: list[CardState], cards: list[CardCapacity]) -> models.Fit:
        try:
            request = wishes.request_of(wish)
            maximum = wishes.maximum_of(wish, request, cards)
            chosen = self._chooser(request)(states)
            share = sum((part.share for part in chosen), NOTHING)
            if not share.fits(maximum):
                raise Refusal(Code.OVER_MAXIMUM, "More is asked for than the slot may ever have.")
        except Refusal as refusal:
            best = None
            if refusal.best_memory is not None and refusal.best_cores is not None:
                best = models.Amounts(memory=refusal.best_memory, cores=refusal.best_cores)
            return models.Fit(fits=False, reason=refusal.sentence, best=best)
        return models.Fit(fits=True, best=amounts(share))

    # -- changing

    def resize(self, slot: str, wish: models.Resize, generation: int | None) -> SlotRecord:
        """Commit new targets, then put them in force."""
        record = self.ledger.slot(slot)
        record = self.ledger.resize(slot, wishes.shares_of(record, wish), generation)
        if not self._store(record):
            raise Refusal(
                Code.UNAVAILABLE,
                "The new size is booked but cannot be written to the slot's page; it is tried again soon.",
            )
        return record

    def release(self, slot: str, created: float | None = None) -> SlotRecord:
        """Shrink a slot to nothing; with `created`, only if it is still the slot made then."""
        if created is not None and self.ledger.slot(slot).created != created:
            raise Refusal(Code.NO_SUCH_SLOT, f"The slot {slot!r} is gone, and another one has its name.")
        record = self.ledger.release(slot)
        self._store(record)
        return record

    def own(self, slot: str, process: int) -> SlotRecord:
        """Note the process whose end releases the slot."""
        return self.ledger.own(slot, process, _start_of(process))

    def remove(self, slot: str) -> None:
        """Strike out a slot that holds nothing; its directory goes last."""
        self.ledger.remove(slot)
        self.accounts.forget(slot)
        self.compute.forget(slot)
        self._sightings.pop(slot, None)
        self._unstored.discard(slot)
        self.directories.remove(slot)

    def _store(self, record: SlotRecord) -> bool:
        """Put page := target; what fails is done again before anything is given back."""
        try:
            self.directories.store(record)
        except OSError as error:
            log.warning("not stored", slot=record.slot, why=str(error))
            self._unstored.add(record.slot)
            return False
        self._unstored.discard(record.slot)
        return True

    def heartbeat(self, record: SlotRecord) -> None:
        """Leave a sign of life in the slot's page; a page that is damaged or behind is made anew."""
        if record.slot in self._unstored:
            self._store(record)
            return
        try:
            self.directories.heartbeat(record.slot)
        except (pages.PageDamaged, OSError):
            log.warning("page made anew", slot=record.slot)
            self._store(record)

    def share(self) -> None:
        """Divide the cards' time anew, and leave a sign of life in every page.

        The sign is left in this loop because it never waits for a slow driver: without it an elastic
        slot would fall back to its guarantee.
        """
        slots = self.ledger.slots()
        if slots != self._seen:  # hardly ever: this runs often, and looks at every slot
            self._seen, self._served = slots, [record for record in slots if not record.reserved]
        due = self._clock() >= self._beat_at
        if due:
            self._beat_at = self._clock() + BEAT_EVERY
        if due or self._unstored:
            for record in self._served:
                if due or record.slot in self._unstored:
                    self.heartbeat(record)
        self.compute.step(self._served)

    # -- giving back

    def unsettled(self) -> list[str]:
        """Return the slots that hold more than is in force, or are being released."""
        return [
            record.slot
            for record in self.ledger.slots()
            if record.releasing or (record.draining and not record.reserved)
        ]

    def claim(self, slot: str) -> Claim | None:
        """Return what a draining slot's pages say, read after its limit was stored; None: no need."""
        record = self.ledger.slot(slot)
        if record.reserved or not (record.draining or record.releasing):
            return None
        if slot in self._unstored and not self._store(record):
            return None
        pages.fence()
        usage = self.directories.usage(slot)
        announced = None
        if not usage.damaged:
            announced = {part.card: usage.pending(i) or 0 for i, part in enumerate(record.slices)}
        return Claim(
            slot=slot,
            generation=record.generation,
            cards=tuple(part.card for part in record.slices),
            announced=announced,
            pids=frozenset(process.pid for process in usage.processes),
            holding={
                part.card: frozenset(each.pid for each in usage.processes if each.cards[index].used)
                for index, part in enumerate(record.slices)
            },
            sightings=self._sightings.get(slot, 0),
        )

    def settle(self, claim: Claim, reading: dict[str, int | None], living: int) -> SlotRecord | None:
        """Give back what the second of two readings after `claim` leaves; None: nothing changed.

        Raises:
            Refusal: ``stale``, also when more was seen in use meanwhile than these readings knew of.
        """
        if self._sightings.get(claim.slot, 0) != claim.sightings:
            raise Refusal(
                Code.STALE, f"The slot {claim.slot!r} was seen using more meanwhile; it is read again."
            )
        before = self.ledger.slot(claim.slot)
        use = use_by_card(claim.cards, claim.announced, reading, living)
        after = self.ledger.settle(claim.slot, claim.generation, use)
        gone = after.releasing and after.held == NOTHING
        return after if after.held != before.held or gone else None

    def found(self, record: SlotRecord, card: str, units: int) -> bool:
        """Take note of what a slot was found to use on a card; tell whether it holds more now.

        What is above its target voids every reading that began earlier: it must not be given away.
        """
        part = record.on(card)
        if part is None or units <= part.target.units:
            return False
        self._sightings[record.slot] = self._sightings.get(record.slot, 0) + 1
        if units <= part.held.units:
            return False
        self.raise_held(record.slot, card, units)
        return True

    def raise_held(self, slot: str, card: str, units: int) -> None:
        """Book what a slot was found to use beyond what it holds."""
        self.ledger.raise_held(slot, card, units)
        over = self.ledger.overbooked()
        log.warning("uses more than it holds", slot=slot, card=card, units=units, overbooked=bool(over))

    def unclaimed(self) -> list[SlotRecord]:
        """Return the slots that nobody has claimed within the time."""
        latest = time.time() - UNCLAIMED_SECONDS
        return [
            record
            for record in self.ledger.slots()
            if record.process is None and not record.releasing and record.created < latest
        ]


class _Chooser:
    """Placement with one request and topology, as `Ledger.grant` calls it."""

    def __init__(self, request: Request, topology: Topology) -> None:
        self._request = request
        self._topology = topology

    def __call__(self, cards: list[CardState]) -> Sequence[Slice]:
        return place(self._request, cards, self._topology)


def _start_of(pid: int) -> int:
    start = start_time(pid) if pid > 0 else None
    if start is None:
        raise Refusal(Code.BAD_REQUEST, f"There is no process {pid} that a slot could belong to.")
    return start
