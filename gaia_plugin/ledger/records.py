"""What the ledger keeps: cards, slots and their slices. Values, never changed in place.

A slot has three amounts on each of its cards. `requested` is what it was made with, `target` is
what is in force (the limits page says the same), `held` is what is booked: never less than
`target`, and more while memory that was given back is still in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gaia_plugin.counted import Holder
from gaia_plugin.shares import NOTHING, Share


@dataclass(frozen=True, slots=True)
class CardCapacity:
    """What one card has for slices: units of memory (driver reserve taken off) and cores."""

    uuid: str
    index: int
    name: str
    units: int
    cores: int = 100
    healthy: bool = True

    @property
    def share(self) -> Share:
        """Return the whole card."""
        return Share(self.units, self.cores)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """What a slot has on one card."""

    card: str
    requested: Share
    target: Share
    held: Share


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """A slot as the ledger has it.

    `generation` counts every change of `target`. `maximum` is a total over all cards. `slices`
    keep their order for ever: it is the order of the cards in the slot's pages. `process` and
    `process_start` (clock ticks since boot) name the process whose end releases the slot. `label`
    says whose slot it is where `owner` says little to people: ``namespace/pod``. `desired` is a note of
    whoever carries out wishes from elsewhere; the ledger does not read it.
    """

    slot: str
    owner: str
    name: str
    generation: int
    releasing: bool
    compute: str
    maximum: Share
    slices: tuple[SliceRecord, ...]
    process: int | None
    process_start: int | None
    created: float
    label: str = ""
    desired: str = ""

    @property
    def holder(self) -> Holder:
        """Return the container whose slot it is."""
        return Holder(self.owner, self.name)

    @property
    def requested(self) -> Share:
        """Return what the slot was made with, over all cards."""
        return total(part.requested for part in self.slices)

    @property
    def target(self) -> Share:
        """Return what is in force, over all cards."""
        return total(part.target for part in self.slices)

    @property
    def held(self) -> Share:
        """Return what is booked, over all cards."""
        return total(part.held for part in self.slices)

    @property
    def draining(self) -> bool:
        """Tell whether more is booked than is in force."""
        return any(part.held != part.target for part in self.slices)

    @property
    def reserved(self) -> bool:
        """Tell whether the slot is booked and was never in force: its making was not finished."""
        return not self.releasing and self.target == NOTHING

    def on(self, card: str) -> SliceRecord | None:
        """Return the slice on `card`, if the slot has one there."""
        return next((part for part in self.slices if part.card == card), None)


def total(shares: Iterable[Share]) -> Share:
    """Add shares up."""
    return sum(shares, NOTHING)
