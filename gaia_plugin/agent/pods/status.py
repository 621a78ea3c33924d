"""What a node says of itself in its `GPUNode`, made from the ledger and what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from gaia_plugin import __version__
from gaia_plugin.counted import Holder, Parts, counted
from gaia_plugin.gpu import Topology
from gaia_plugin.gpu.topology import Level
from gaia_plugin.kube import gpunode
from gaia_plugin.kube.gpunode import Amounts, Condition, DesiredStatus
from gaia_plugin.ledger import CardCapacity, SlotRecord
from gaia_plugin.placement.refusals import share_text
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import MEMORY_UNIT, MIB, format_cores, format_memory

_LEVELS: Final[Mapping[Level, Literal["NUMA", "Switch", "NVLink"]]] = {
    Level.NUMA: "NUMA",
    Level.SWITCH: "Switch",
    Level.NVLINK: "NVLink",
}
_LONGEST: Final = 1000
"""Characters of a sentence about a slot."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was in use when it was measured: bytes by card, and by slot and card."""

    cards: Mapping[str, int] = field(default_factory=dict)
    slots: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the node knows at one moment.

    Args:
        cards: all of the ledger's, lost ones included.
        slots: all of the ledger's.
        topology: how the cards are linked.
        troubles: why cards are not healthy, by UUID.
        notes: what people should know of single slots.
    """

    cards: Sequence[CardCapacity]
    slots: Sequence[SlotRecord]
    topology: Topology = field(default_factory=Topology)
    troubles: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def build(
    facts: Facts,
    reserved: Mapping[Holder, Parts],
    *,
    ready: bool,
    heartbeat: str,
    sample: Sample | None = None,
    conditions: Iterable[Condition] = (),
) -> gpunode.Status:
    """Return the whole status.

    Args:
        facts: what the ledger has, read after `reserved` was.
        reserved: what is promised to containers, by the version of the object that is to be written over.
        ready: whether new slices may be sent here.
        heartbeat: the time, RFC 3339.
        sample: what was measured; None: nothing.
        conditions: what is to be known of the node as a whole.
    """
    held = {slot.holder: {part.card: part.held for part in slot.slices} for slot in facts.slots}
    taken = counted(held, reserved)
    free = {card.uuid: (card.share - taken.get(card.uuid, NOTHING)).most(NOTHING) for card in facts.cards}
    measured = Sample() if sample is None else sample
    return gpunode.Status(
        ready=ready,
        heartbeat=heartbeat,
        agent_version=__version__,
        cards=tuple(_card(card, free[card.uuid], facts, measured) for card in facts.cards),
        slots=tuple(_slot(slot, facts.notes.get(slot.slot, ""), measured) for slot in facts.slots),
        conditions=tuple(conditions),
        summary=_summary(facts.cards, free),
    )


def same(one: gpunode.Status, other: gpunode.Status) -> bool:
    """Tell whether two statuses say the same, apart from when it was and what was measured."""
    at_once = msgspec.structs.replace(one, heartbeat=other.heartbeat) == other  # most of the time, and cheap
    return at_once or _decided(one) == _decided(other)


def _decided(status: gpunode.Status) -> gpunode.Status:
    replace = msgspec.structs.replace
    return replace(
        status,
        heartbeat="",
        cards=tuple(replace(card, used_mi_b=None) for card in status.cards),
        slots=tuple(
            replace(slot, slices=tuple(replace(part, used_mi_b=None) for part in slot.slices))
            for slot in status.slots
        ),
    )


def _card(card: CardCapacity, free: Share, facts: Facts, sample: Sample) -> gpunode.CardStatus:
    reason = "" if card.healthy else facts.troubles.get(card.uuid, "This machine has the card no more.")
    return gpunode.CardStatus(
        uuid=card.uuid,
        index=card.index,
        model=card.name,
        healthy=card.healthy,
        capacity=Amounts.of(card.share),
        free=Amounts.of(free),
        reason=reason[:_LONGEST],
        used_mi_b=_mib(sample.cards.get(card.uuid)),
        links=_links(card.uuid, facts),
    )


def _links(uuid: str, facts: Facts) -> tuple[gpunode.Link, ...]:
    found = []
    for other in facts.cards:
        tie = facts.topology.tie(uuid, other.uuid) if other.uuid != uuid else None
        if tie is not None and tie.level in _LEVELS:
            found.append(gpunode.Link(other.uuid, _LEVELS[tie.level], tie.links))
    return tuple(found)


def _slot(slot: SlotRecord, note: str, sample: Sample) -> gpunode.SlotStatus:
    used = sample.slots.get(slot.slot, {})
    return gpunode.SlotStatus(
        uid=slot.owner,
        container=slot.name,
        state=_state(slot),
        slices=tuple(
            gpunode.SliceStatus(
                card=part.card,
                requested=Amounts.of(part.requested),
                granted=Amounts.of(part.target),
                held=Amounts.of(part.held),
                used_mi_b=_mib(used.get(part.card)),
            )
            for part in slot.slices
        ),
        maximum=Amounts.of(slot.maximum),
        compute="elastic" if slot.compute == "elastic" else "hard",
        generation=slot.generation,
        pod=slot.label,
        message=note[:_LONGEST],
        desired=read_desired(slot.desired),
    )


def _state(slot: SlotRecord) -> Literal["Making", "Applied", "Draining", "Releasing"]:
    if slot.releasing:
        return "Releasing"
    if slot.reserved:
        return "Making"
    return "Draining" if slot.draining else "Applied"


def _mib(amount: int | None) -> int | None:
    return None if amount is None else -(-amount // MIB)


def _summary(cards: Sequence[CardCapacity], free: Mapping[str, Share]) -> gpunode.Summary:
    """Return the words of the columns: what is free of what is usable."""
    well = [card for card in cards if card.healthy]
    whole = sum((card.share for card in well), NOTHING)
    left = sum((free[card.uuid] for card in well), NOTHING)
    largest = max((free[card.uuid] for card in well), key=lambda s: (s.units, s.cores), default=NOTHING)
    return gpunode.Summary(
        cards=str(len(cards)) if len(well) == len(cards) else f"{len(well)} of {len(cards)}",
        memory=f"{format_memory(left.units * MEMORY_UNIT)} of {format_memory(whole.units * MEMORY_UNIT)}",
        cores=f"{format_cores(left.cores)} of {format_cores(whole.cores)}",
        largest=share_text(largest),
    )


# -- what was desired of a slot, as the ledger keeps it


def read_desired(text: str) -> DesiredStatus | None:
    """Return what became of a slot's last desired size, from the ledger's note; None: nothing was desired."""
    if not text:
        return None
    try:
        return _DESIRED.decode(text)
    except msgspec.DecodeError:
        return None


def write_desired(desired: DesiredStatus | None) -> str:
    """Return the ledger's note of it."""
    return "" if desired is None else msgspec.json.encode(desired).decode()


_DESIRED: Final = msgspec.json.Decoder(DesiredStatus)
