"""What a slot's record means in the words of its limits page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gaia_plugin.ledger.records import SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots.uuids import uuid_words
from gaia_plugin.units import MEMORY_UNIT

_PPM_OF_CORE: Final = 10_000
_WHOLE_CARD_PPM: Final = 1_000_000
_BURST_NS_OF_CORE: Final = 500_000
"""The bucket of GPU time holds 50 ms at the whole card and in proportion below."""


def state_of(record: SlotRecord) -> str:
    """Return the slot's state as the API names it."""
    if record.releasing:
        return "releasing"
    return "draining" if record.draining else "applied"


def words(
    record: SlotRecord, capacity: Mapping[str, int], context_bytes: int, layout: Mapping[str, int]
) -> Iterator[tuple[int, int]]:
    """Yield (offset, value) for all that the page says of `record`.

    Args:
        record: the slot; its `target` is what goes into the page, never `held`.
        capacity: units of memory by card, to bound the ceiling; cards left out bound nothing.
        context_bytes: charged for each process's context until it has been measured.
        layout: see `gaia_plugin.slots.pages.layout`.
    """
    yield layout["limits.generation"], record.generation
    yield layout["limits.state"], layout[f"state.{state_of(record)}"]
    yield layout["limits.card_count"], len(record.slices)
    for index, part in enumerate(record.slices):
        base = layout["limits.card"] + index * layout["limits.card.bytes"]
        for name, value in _card(record, part, capacity, context_bytes, layout).items():
            yield base + layout[f"limits.card.{name}"], value
        first, second = uuid_words(part.card)
        yield base + layout["limits.card.uuid"], first
        yield base + layout["limits.card.uuid"] + 8, second


def share_of(memory_limit: int, rate_ppm: int) -> Share:
    """Return the share that a card's words grant."""
    return Share(memory_limit // MEMORY_UNIT, rate_ppm // _PPM_OF_CORE)


def _card(
    record: SlotRecord,
    part: SliceRecord,
    capacity: Mapping[str, int],
    context_bytes: int,
    layout: Mapping[str, int],
) -> dict[str, int]:
    most = record.maximum.units // len(record.slices)
    ceiling = 0 if record.releasing else max(min(most, capacity.get(part.card, most)), part.target.units)
    rate = part.target.cores * _PPM_OF_CORE
    elastic = record.compute == "elastic" and rate > 0
    return {
        "memory_limit": part.target.units * MEMORY_UNIT,
        "memory_ceiling": ceiling * MEMORY_UNIT,
        "memory_report": layout["report.limit"],
        "context_bytes": context_bytes,
        "rate_ppm": rate,
        "guarantee_ppm": rate,
        "ceiling_ppm": _WHOLE_CARD_PPM if elastic else rate,
        "compute_mode": layout["compute.elastic" if elastic else "compute.hard"],
        "burst_ns": part.target.cores * _BURST_NS_OF_CORE,
    }
