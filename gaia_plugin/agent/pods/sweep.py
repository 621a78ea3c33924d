"""Gives back what containers had that have ended for good.

A watch may be behind, so a pod that is merely not seen is asked for at the API server itself; where that
gives no answer nothing is released. Nothing of a pod that runs is ever touched here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.identity import Life, Owner, names_in, twice
from gaia_plugin.agent.pods.ports import Checkpoint, Server
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.errors import Refusal
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.ledger.allocations import Allocation

log = structlog.get_logger(__name__)

UNCLAIMED_SECONDS: Final = 600.0
"""An answer to an Allocate that no pod came for is forgotten after so long."""


class Desk(Protocol):
    """What the sweep asks of the node."""

    core: PodCore

    async def records(self) -> list[SlotRecord]:
        """Return all slots."""

    async def release_all(self, records: Sequence[SlotRecord]) -> None:
        """Begin the release of exactly these slots."""

    async def take_back(self, slot: str) -> None:
        """Strike out what was reserved and never in force."""

    def busy(self, owner: Owner) -> bool:
        """Tell whether a container is seen to at the moment."""

    async def forget(self, uids: Iterable[str]) -> None:
        """Forget the allocations of pods that are gone and hold nothing."""


def unseen(
    records: Iterable[SlotRecord], rows: Iterable[Allocation], life: Callable[[Owner], Life]
) -> set[str]:
    """Return the UIDs of pods that have something here and are not seen."""
    owners = {Owner(record.owner, record.name) for record in records if not record.releasing}
    owners |= {Owner(row.uid, row.container) for row in rows if row.bound}
    return {owner.uid for owner in owners if life(owner) is Life.UNKNOWN}


def ended(records: Iterable[SlotRecord], life: Callable[[Owner], Life]) -> list[SlotRecord]:
    """Return the slots to be released."""
    return [
        record
        for record in records
        if not (record.releasing or record.reserved) and life(Owner(record.owner, record.name)) is Life.ENDED
    ]


def abandoned(
    records: Iterable[SlotRecord], life: Callable[[Owner], Life], busy: Callable[[Owner], bool]
) -> list[SlotRecord]:
    """Return the slots whose making was given up when their pod ended: nothing of them was in force."""
    owners = ((record, Owner(record.owner, record.name)) for record in records if record.reserved)
    return [record for record, owner in owners if life(owner) is Life.ENDED and not busy(owner)]


def finished(rows: Iterable[Allocation], life: Callable[[Owner], Life]) -> set[str]:
    """Return the UIDs of pods all of whose containers with devices have ended."""
    alive: set[str] = set()
    seen: set[str] = set()
    for row in rows:
        if row.bound:
            seen.add(row.uid)
            if life(Owner(row.uid, row.container)) is not Life.ENDED:
                alive.add(row.uid)
    return seen - alive


@dataclass
class Sweep:
    """One round after the other.

    Args:
        desk: the node.
        sight: the pods.
        server: the API server.
        checkpoint: the kubelet's record.
        clock: monotonic seconds.
    """

    desk: Desk
    sight: Sight
    server: Server
    checkpoint: Checkpoint
    clock: Callable[[], float] = time.monotonic
    _doubled: set[tuple[Owner, Owner]] = field(default_factory=set)

    async def round(self) -> None:
        """Release the slots of ended containers, and forget what nobody has any more."""
        if not self.sight.synced:
            return
        records, rows = await self.desk.records(), self.desk.core.allocations.all()
        if missing := unseen(records, rows, self.sight.life):
            await self._ask_for(missing)
        await self.desk.release_all(ended(records, self.sight.life))
        for record in abandoned(records, self.sight.life, self.desk.busy):
            log.info("its making was not finished", slot=record.slot, pod=record.label)
            await self.desk.take_back(record.slot)
        await self.desk.forget(finished(rows, self.sight.life))
        self._tell_of_doubles(rows)

    async def _ask_for(self, uids: set[str]) -> None:
        try:
            there = await self.server.uids_now()
        except ApiError as error:
            log.warning("nothing is released that is not seen", why=str(error))
            return
        for uid in uids - there:
            self.sight.gone(uid)

    async def tidy(self) -> None:
        """Forget answers that no pod came for."""
        allocations = self.desk.core.allocations
        latest = self.clock() - UNCLAIMED_SECONDS
        old = {row.nonce for row in allocations.all() if not row.bound and row.seen < latest}
        if not old:
            return
        try:
            found = names_in(await self.checkpoint.entries(), f"{self.desk.core.domain}/slot")
        except Refusal as refusal:
            log.warning("answers are kept", why=refusal.sentence)
            return
        # the kubelet strikes an ended pod out at its next admission only
        held = {each.nonce for each in found if self.sight.life(each.owner) is not Life.ENDED}
        for each in found:
            if each.nonce in old & held:
                allocations.bind(each.nonce, each.owner.uid, each.owner.container)
        allocations.forget_unbound(old - held)

    def _tell_of_doubles(self, rows: Iterable[Allocation]) -> None:
        """Say where the kubelet gave a device to two containers; each has its own slot all the same."""
        found = set(twice(rows, self.sight.life))
        for first, second in found - self._doubled:
            log.error("the kubelet gave a device to two containers", first=first, second=second)
        self._doubled = found
