"""What a pod agent does to ledger, pages and CDI specs. Every method is one step and runs alone.

The order is always ledger, page, specs. A kill in between leaves a ledger that books at least what the
page allows, and a name that resolves to nothing or to its own container's slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from gaia_plugin.agent import wishes
from gaia_plugin.agent.core import Core
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.agent.pods import lost
from gaia_plugin.agent.pods.explain import Admitted, Scene, explain, explain_gone
from gaia_plugin.agent.pods.identity import Owner, names_of
from gaia_plugin.agent.pods.placed import Choice, Order, maximum
from gaia_plugin.agent.pods.ports import Specs
from gaia_plugin.agent.pods.status import Facts
from gaia_plugin.agent.pods.unmanaged import OnCard
from gaia_plugin.agent.readings import Inventory
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.kube.pods import Pod, memory_resource
from gaia_plugin.ledger import Ledger, SlotRecord
from gaia_plugin.ledger.allocations import Allocations
from gaia_plugin.placement import largest_free
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.slots.container import ContainerDirectories
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.names import slot_name

log = structlog.get_logger(__name__)

FROM_PODS: Final = "On this node slots are made by pods and end with them: create or delete the pod."


class PodCore(Core):
    """`Core` with slots that belong to containers of pods: the owner is the UID, the name the container.

    Args:
        allocations: the names that were answered.
        specs: the CDI specs.
        node_name: of this node in the cluster.
        domain: of resources and annotations.
        others: as for `Core`.
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
        *,
        allocations: Allocations,
        specs: Specs,
        node_name: str,
        domain: str,
    ) -> None:
        self.allocations = allocations
        self.specs = specs
        self.node_name = node_name
        self.domain = domain
        self.notes: dict[str, str] = {}
        """Sentences for people about single slots: what was found after a fault."""
        self.watched: dict[str, str] = {}
        """Likewise, what the watchdog says now."""
        self.raised: dict[OnCard, int] = {}
        """Units that a slot held on a card before it was found to have more."""
        self.cards = inventory.cards
        super().__init__(state, driver, inventory, ledger, directories, context, gauge)

    def sync(self, inventory: Inventory) -> None:
        """Tell the ledger which cards there are."""
        super().sync(inventory)
        # those that left while a slot is on them are in the ledger only
        self.cards = tuple(self.ledger.cards())

    def close(self) -> None:
        """Close ledger, pages and allocations; what is in force stays so."""
        super().close()
        self.allocations.close()

    # -- beginning

    def recover(self) -> list[SlotRecord]:
        """Take up what is there: never a directory is removed that a running container may have.

        Slots whose making was not finished are struck out, for nothing of them was ever in force.
        Directories that the ledger does not know are entered in it, as their pages say.
        """
        for record in self.ledger.slots():
            if record.reserved:
                log.info("its making was not finished", slot=record.slot)
                self.take_back(record.slot)
        self._adopt_directories()
        self.tidy_directories()
        records = self.ledger.slots()
        for record in records:
            try:
                self.secure(record)
            except (OSError, Unusable) as error:
                log.warning("not stored", slot=record.slot, why=str(error))
                self._unstored.add(record.slot)
        return records

    def _adopt_directories(self) -> None:
        known = {record.slot for record in self.ledger.slots()}
        for slot in self.directories.slots():
            if slot in known:
                continue
            found = lost.from_page(slot, self.directories.path(slot))
            if isinstance(found, str):
                # nothing was ever in force there: no program can have taken anything by it
                log.info("removing what is left of a slot", slot=slot, why=found)
                self._remove_directory(slot)
                continue
            self.ledger.adopt(found)
            self.note(slot, "The ledger was lost; this slot was entered again from its page.")

    def adopt(self, record: SlotRecord, why: str) -> SlotRecord:
        """Enter a slot whose container runs and that is known nowhere else; make its directory."""
        record = self.ledger.adopt(record)
        self.note(record.slot, why)
        self.secure(record)
        return record

    def note(self, slot: str, sentence: str) -> None:
        """Tell the log, and people who look at the slot."""
        log.warning("found after a fault", slot=slot, what=sentence)
        self.notes[slot] = sentence

    def tidy_directories(self) -> None:
        """Remove directories and usage pages of no slot: what a removal that failed has left.

        Only after `recover`, which enters in the ledger what is of a slot that was lost.
        """
        try:
            self.directories.clear({record.slot for record in self.ledger.slots()})
        except (OSError, Refusal) as error:
            log.warning("directories of no slot are left", why=str(error))

    def tidy_specs(self) -> None:
        """Remove specs of no slot. Only when it is known what runs: a spec may be all that is left."""
        owners = {record.owner for record in self.ledger.slots() if not record.releasing}
        names = {row.name: row.uid for row in self.allocations.all() if row.uid in owners}
        listed = self.specs.listed()
        self.specs.remove([name for name, uid in listed.items() if names.get(name) != uid])

    def cards_in_spec(self, owner: Owner) -> list[str]:
        """Return the cards that a container's CDI spec names; empty if there is none."""
        mine = [row.name for row in self.allocations.of(owner.uid) if row.container == owner.container]
        return next((cards for name in mine if (cards := self.specs.cards(name, owner.uid))), [])

    # -- making

    def find(self, owner: Owner) -> SlotRecord | None:
        """Return a container's slot, if there is one."""
        try:
            return self.ledger.slot(slot_name(owner.uid, owner.container))
        except Refusal:
            return None

    def reserve(self, order: Order) -> SlotRecord:
        """Book an order: the first step of a grow from nothing.

        Raises:
            Refusal: as placement and ledger refuse.
        """
        choice = Choice(order, self.node_name, self.domain, self._topology)
        record = self.ledger.reserve(
            order.slot, order.owner.uid, order.owner.container, choice,
            maximum(order.wish, self.ledger.cards()), order.wish.compute, label=order.pod.title,
        )  # fmt: skip
        if choice.ignored:
            log.warning("placement ignored", pod=order.pod.title, why=choice.ignored)
        if choice.moved:
            log.info("placed elsewhere", pod=order.pod.title, container=order.owner.container)
        return record

    def put_in_force(self, slot: str) -> tuple[SlotRecord, frozenset[str]]:
        """Commit the target of a slot that was reserved, write its page, then its specs.

        Return it with the names that resolve now.

        Raises:
            Refusal: code ``unavailable``; nothing is left of the slot then.
        """
        record = self.ledger.commit(slot)
        try:
            return record, self.secure(record)
        except (OSError, Unusable) as error:
            self._take_back(slot)
            self._remove_specs(record)
            raise Refusal(Code.UNAVAILABLE, f"The slot's directory cannot be made: {error}") from error

    def take_back(self, slot: str) -> None:
        """Strike out a slot that was reserved, and what there is of its directory; again: no change."""
        if any(record.slot == slot for record in self.ledger.slots()):
            self.ledger.take_back(slot)
            self._remove_directory(slot)

    def _remove_directory(self, slot: str) -> None:
        try:
            self.directories.remove(slot)
        except Refusal:
            log.warning("not a slot's directory", name=slot)

    def secure(self, record: SlotRecord) -> frozenset[str]:
        """Make sure of a slot's directory, page and specs; return the names that resolve now.

        A slot that is being released gets no spec: nothing may start in it.

        Raises:
            OSError, Unusable: something cannot be written.
        """
        self.directories.create(record, self.ledger.cards(), self.driver)
        self._unstored.discard(record.slot)
        if record.releasing:
            return frozenset()
        names = names_of(
            self.allocations.of(record.owner), Owner(record.owner, record.name), memory_resource(self.domain)
        )
        self.specs.write(record, names)
        return frozenset(names)

    def largest_free(self) -> Share | None:
        """Return the largest slice that could be given now."""
        return largest_free(self.ledger.states())

    # -- ending

    def release(self, slot: str, created: float | None = None) -> SlotRecord:
        """Shrink a slot to nothing and take its names away."""
        record = super().release(slot, created)
        self._remove_specs(record)
        return record

    def release_all(self, records: Iterable[SlotRecord]) -> None:
        """Begin the release of exactly these slots, those that are gone meanwhile excepted."""
        for record in records:
            try:
                self.release(record.slot, record.created)
            except Refusal as refusal:
                log.info("not released", slot=record.slot, why=refusal.sentence)

    def _remove_specs(self, record: SlotRecord) -> None:
        rows = [row for row in self.allocations.of(record.owner) if row.container == record.name]
        try:
            self.specs.remove([row.name for row in rows])
        except OSError as error:
            # they are removed with those of nobody; until then they lead to a page that grants nothing
            log.warning("specs not removed", slot=record.slot, why=str(error))

    def remove(self, slot: str) -> None:
        """Strike out a slot that holds nothing; its directory goes last."""
        super().remove(slot)
        self.notes.pop(slot, None)

    def raise_held(self, slot: str, card: str, units: int) -> None:
        """Book what a slot was found to use beyond what it holds; remember what it was given."""
        part = self.ledger.slot(slot).on(card)
        if part is not None:
            self.raised.setdefault(OnCard(slot, card), part.held.units)
        super().raise_held(slot, card, units)

    def note_of(self, slot: str) -> str:
        """Return what people should know of a slot; empty: nothing."""
        return " ".join(note for note in (self.notes.get(slot), self.watched.get(slot)) if note)

    def forget(self, uids: Iterable[str]) -> None:
        """Forget the allocations of pods that are gone, those of slots that still hold something excepted."""
        holding = {record.owner for record in self.ledger.slots()}
        for uid in set(uids) - holding:
            self.specs.remove([row.name for row in self.allocations.forget(uid)])

    def unclaimed(self) -> list[SlotRecord]:
        """Return none: no process claims a pod's slot, its pod does."""
        return []

    def renew_usage(self, slot: str) -> None:
        """Clear what a slot's last container claimed; nothing happens while a process of it lives."""
        if isinstance(self.directories, ContainerDirectories):
            self.directories.renew_usage(slot)

    def make(self, wish: models.NewSlot) -> SlotRecord:
        """Refuse: slots come from pods here."""
        raise Refusal(Code.BAD_REQUEST, FROM_PODS)

    def own(self, slot: str, process: int) -> SlotRecord:
        """Refuse: slots belong to pods here."""
        raise Refusal(Code.BAD_REQUEST, FROM_PODS)

    # -- changing its size

    def begin_resize(
        self, slot: str, wish: models.Resize, generation: int | None
    ) -> tuple[SlotRecord, SlotRecord, bool]:
        """Put a smaller size in force, or book a larger one; return the slot before and after, and whether
        it is only booked: `finish_grow` or `give_up` must follow then.

        Raises:
            Refusal: as `Ledger.hold` and `Ledger.resize`.
        """
        before = self.ledger.slot(slot)
        wanted = wishes.shares_of(before, wish)
        if all(share.fits(_target(before, card)) for card, share in wanted.items()):
            return before, self.resize(slot, wish, generation), False
        return before, self.ledger.hold(slot, wanted, generation), True

    def finish_grow(self, booked: SlotRecord) -> SlotRecord:
        """Put in force what `booked` has and what was announced: ledger first, then the page.

        Raises:
            Refusal: ``stale``: the slot was changed since it was booked, and that is in force;
                ``unavailable``.
        """
        record = self.ledger.commit(booked.slot, booked.generation)
        if not self._store(record):
            raise Refusal(
                Code.UNAVAILABLE,
                "The new size is booked but cannot be written to the slot's page; it is tried again soon.",
            )
        return record

    def give_up(self, booked: SlotRecord) -> None:
        """Give up what a grow has booked, once: it falls as after a shrink."""
        with suppress(Refusal):  # the slot is gone, and all that it held
            self.ledger.undo(booked.slot, booked.generation)

    # -- looking

    def facts(self) -> Facts:
        """Return what the node knows now, for its status."""
        slots, foreign = self.ledger.slots(), self.ledger.foreign()
        notes = {slot.slot: note for slot in slots if (note := self.note_of(slot.slot))}
        # what nobody's slot uses is not the extender's to give, as little as what the driver keeps
        cards = [replace(c, units=max(0, c.units - foreign.get(c.uuid, 0))) for c in self.ledger.cards()]
        return Facts(cards, slots, self._topology, dict(self._troubles), notes)

    def slot_use(self) -> Mapping[str, Mapping[str, int]]:
        """Return the bytes that slots use, by slot and card."""
        return {record.slot: self.accounts.measured(record).used for record in self.ledger.slots()}

    def slot_view(self, slot: str) -> models.Slot:
        """Return one slot as the API shows it, with what was found about it."""
        return self._noted(super().slot_view(slot))

    def slot_views(self) -> tuple[models.Slot, ...]:
        """Return all slots as the API shows them, with what was found about them."""
        return tuple(self._noted(view) for view in super().slot_views())

    def _noted(self, view: models.Slot) -> models.Slot:
        note = self.note_of(view.slot)
        if not note:
            return view
        return msgspec.structs.replace(view, message=f"{view.message} {note}", note=note)

    def explain(
        self, title: str, pod: Pod | None, admitted: Mapping[str, Admitted], titles: Mapping[str, str],
        *, now: float, doubt: str, unseen: str = "",
    ) -> models.Explained | None:  # fmt: skip
        """Tell of a pod what it asks for, what it has, and why it has no more; None: it is not known.

        Args:
            title: namespace/name.
            pod: as it is seen; None: it is gone, and only what is left of it is told.
            admitted, titles, now, doubt, unseen: see `gaia_plugin.agent.pods.explain`.
        """
        scene = Scene(
            node=self.node_name,
            cards=self.ledger.cards(),
            records=self.ledger.slots(),
            views={view.slot: view for view in self.slot_views()},
            reserved=self.ledger.reservations(),
            foreign=self.ledger.foreign(),
            titles=titles,
            topology=self._topology,
            now=now,
            domain=self.domain,
            doubt=doubt,
            unseen=unseen,
            troubles=self._troubles,
        )
        return explain_gone(title, scene) if pod is None else explain(pod, admitted, scene)

    def placements(self) -> Mapping[str, Mapping[str, Mapping[str, Share]]]:
        """Return what each pod was given, by UID, container and card."""
        found: dict[str, dict[str, dict[str, Share]]] = {}
        for record in self.ledger.slots():
            if not (record.releasing or record.reserved):
                parts = {part.card: part.requested for part in record.slices}
                found.setdefault(record.owner, {})[record.name] = parts
        return found


def _target(record: SlotRecord, card: str) -> Share:
    part = record.on(card)
    return NOTHING if part is None else part.target
