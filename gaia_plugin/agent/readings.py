"""What the driver says, asked in a thread of its own because a driver may be slow or hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from gaia_plugin.agent.alarm import Alarm
from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Gpus, Topology
from gaia_plugin.ledger import CardCapacity
from gaia_plugin.slots.members import Members
from gaia_plugin.units import units_down

log = structlog.get_logger(__name__)

Figures = Mapping[str, Mapping[int, int | None]]
"""By card UUID and host pid: bytes, or None where the driver gives no figure."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The cards of this machine, how they are linked, and by UUID why some are not healthy."""

    cards: tuple[CardCapacity, ...]
    topology: Topology
    troubles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a slot's pages said before the driver is asked; see `Core.claim`.

    `announced` is bytes by card, None when the usage page is damaged; `pids` are the processes
    that the page names, `holding` those that claim to hold memory, by card. `sightings` is how often
    the slot had been found above its target by then.
    """

    slot: str
    generation: int
    cards: tuple[str, ...]
    announced: Mapping[str, int] | None
    pids: frozenset[int]
    holding: Mapping[str, frozenset[int]]
    sightings: int = 0


def inventory(gpus: Gpus, alarm: Alarm | None = None) -> Inventory:
    """Return the cards: what a card has is what its driver does not keep, in whole units.

    Raises:
        Refusal, Unusable: the driver does not answer at all.
    """
    listed = gpus.cards()
    troubles = {} if alarm is None else alarm.troubles(listed)
    troubles |= {card.uuid: f"The card is out of use: {card.trouble}." for card in listed if not card.healthy}
    cards = tuple(
        CardCapacity(
            uuid=card.uuid,
            index=card.index,
            name=card.name,
            units=max(0, units_down(card.memory_total - card.memory_reserved)),
            healthy=card.uuid not in troubles,
        )
        for card in listed
    )
    return Inventory(cards, gpus.topology(), troubles)


class Reader:
    """Asks the driver. A card that gives no answer is left out of every answer here.

    Args:
        gpus: the driver.
        members: knows the slots' processes.
        alarm: knows of faults; None: nobody listens.
    """

    def __init__(self, gpus: Gpus, members: Members, alarm: Alarm | None = None) -> None:
        self._gpus = gpus
        self._members = members
        self._alarm = alarm

    def alarmed(self) -> bool:
        """Tell whether a card fell sick since this was asked the last time; never waits."""
        return self._alarm is not None and self._alarm.take()

    def inventory(self) -> Inventory:
        """Return the cards, see `inventory`."""
        return inventory(self._gpus, self._alarm)

    def used(self, cards: Iterable[str]) -> dict[str, int]:
        """Return the bytes in use by card, by whomever."""
        found = {}
        for uuid in cards:
            try:
                found[uuid] = self._gpus.memory_used(uuid)
            except Refusal as refusal:
                log.warning("no figure", card=uuid, why=refusal.sentence)
        return found

    def figures(self, cards: Iterable[str]) -> dict[str, dict[int, int | None]]:
        """Return the bytes of each process on each card."""
        found = {}
        for uuid in cards:
            try:
                found[uuid] = dict(self._gpus.processes(uuid))
            except Refusal as refusal:
                log.warning("no processes", card=uuid, why=refusal.sentence)
        return found

    def use(self, claim: Claim) -> tuple[dict[str, int | None], int]:
        """Return a slot's bytes by card (None: no figure), and how many processes it has.

        A process belongs to the slot if the usage page names it or if it was started in it: the
        page is a claim, and a process may hold memory before or without being in it.
        """
        figures = self.figures(claim.cards)
        on_cards = {pid for listed in figures.values() for pid in listed}
        members = claim.pids | {pid for pid in on_cards if self._members.contains(claim.slot, pid)}
        sums: dict[str, int | None] = {}
        for uuid, listed in figures.items():
            mine = [figure for pid, figure in listed.items() if pid in members]
            # a process that holds memory and that the driver does not list has no figure, not 0
            unlisted = claim.holding.get(uuid, frozenset()) - set(listed)
            sums[uuid] = None if None in mine or unlisted else sum(figure or 0 for figure in mine)
        return sums, len(members)
