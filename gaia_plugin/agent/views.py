"""Slots and cards as the API shows them, made from the ledger's records and what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gaia_plugin.api import models
from gaia_plugin.ledger import CardCapacity, SlotRecord
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import MEMORY_UNIT, format_cores, format_memory


@dataclass(frozen=True, slots=True)
class Measured:
    """What a slot uses: bytes by card, its processes with what each holds, and compute time."""

    used: Mapping[str, int] = field(default_factory=dict)
    processes: tuple[models.Process, ...] = ()
    time: models.SlotTime | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """The cards and what is free on each."""

    cards: Mapping[str, CardCapacity]
    free: Mapping[str, Share]


def amounts(share: Share) -> models.Amounts:
    """Return a share in bytes and cores."""
    return models.Amounts(memory=share.units * MEMORY_UNIT, cores=share.cores)


def state_of(record: SlotRecord) -> models.State:
    """Return the state in one word."""
    if record.releasing:
        return "releasing"
    return "draining" if record.draining else "applied"


def slot_view(record: SlotRecord, room: Room, reach: Share, measured: Measured) -> models.Slot:
    """Return the slot as the API shows it."""
    cards = []
    for part in record.slices:
        card = room.cards.get(part.card)
        cards.append(
            models.SlotCard(
                uuid=part.card,
                index=-1 if card is None else card.index,
                name="a card that is gone" if card is None else card.name,
                requested=amounts(part.requested),
                granted=amounts(part.target),
                held=amounts(part.held),
                used=measured.used.get(part.card, 0),
                free_on_card=amounts(room.free.get(part.card, NOTHING)),
            )
        )
    return models.Slot(
        slot=record.slot,
        owner=record.owner,
        name=record.name,
        generation=record.generation,
        state=state_of(record),
        compute="elastic" if record.compute == "elastic" else "hard",
        requested=amounts(record.requested),
        granted=amounts(record.target),
        held=amounts(record.held),
        used=sum(measured.used.values()),
        maximum=amounts(record.maximum),
        could_reach=amounts(reach),
        cards=tuple(cards),
        processes=measured.processes,
        message=message(record, measured),
        time=measured.time,
        label=record.label,
    )


def message(record: SlotRecord, measured: Measured) -> str:
    """Return the sentences that go with the slot's state."""
    note = "" if measured.time is None else measured.time.note
    return f"{_state_sentence(record, measured)} {note}".rstrip()


def _state_sentence(record: SlotRecord, measured: Measured) -> str:
    if record.releasing:
        left = format_memory(record.held.units * MEMORY_UNIT)
        return f"The slot has ended. {left} is still booked and goes back when its programs have ended."
    memory, cores = format_memory(record.target.units * MEMORY_UNIT), format_cores(record.target.cores)
    if not record.draining:
        at_least = "at least " if record.compute == "elastic" else ""
        return f"{memory} of memory and {at_least}{cores} of the card's time are in force."
    over = sum(
        max(0, measured.used.get(part.card, 0) - part.target.units * MEMORY_UNIT) for part in record.slices
    )
    if over == 0:
        return f"Its limit is {memory} now. What is free goes back to the others in a moment."
    return (
        f"Its limit is {memory} now. {format_memory(over)} more is still in use: free it (restart a kernel, "
        "del tensors and torch.cuda.empty_cache()) and it goes back to the others."
    )


def card_view(
    card: CardCapacity, free: Share, used: int, slots: Sequence[SlotRecord], trouble: str = ""
) -> models.CardView:
    """Return a card as the API shows it. `used` in bytes, by whomever; `trouble` why it is not healthy."""
    return models.CardView(
        uuid=card.uuid,
        index=card.index,
        name=card.name,
        healthy=card.healthy,
        total=amounts(card.share),
        free=amounts(free if card.healthy else NOTHING),
        used=used,
        slots=tuple(record.slot for record in slots if record.on(card.uuid) is not None),
        trouble="" if card.healthy else trouble or "This machine has the card no more.",
    )
