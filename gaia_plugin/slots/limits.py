"""What a slot's record means in the words of its limits page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gaia_plugin.ledger.records import SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots.uuids import uuid_words
from gaia_plugin.units import MEMORY_UNIT

PPM_OF_CORE: Final = 10_000
WHOLE_CARD: Final = 1_000_000
NO_RATES: Final[Mapping[str, int]] = MappingProxyType({})
_BURST_NS_OF_CORE: Final = 500_000
"""The bucket of GPU time holds 50 ms at the whole card and in proportion below."""


def state_of(record: SlotRecord) -> str:
    """Return the slot's state as the API names it."""
    if record.releasing:
        return "releasing"
    return "draining" if record.draining else "applied"


def words(
    record: SlotRecord,
    capacity: Mapping[str, int],
    context_bytes: int,
    layout: Mapping[str, int],
    compute_ceiling: int = WHOLE_CARD,
    rates: Mapping[str, int] = NO_RATES,
) -> Iterator[tuple[int, int]]:
    """Yield (offset, value) for all that the page says of `record`.

    Args:
        record: the slot; its `target` is what goes into the page, never `held`.
        capacity: units of memory by card, to bound the ceiling; cards left out bound nothing.
        context_bytes: charged for each process's context until it has been measured.
        layout: see `gaia_plugin.slots.pages.layout`.
        compute_ceiling: ppm of a card that its elastic slots may have in all.
        rates: ppm in force by card. An elastic slot keeps what it has of a card's idle time when
            something else of it changes; cards left out begin at their guarantee.
    """
    yield layout["limits.generation"], record.generation
    yield layout["limits.state"], layout[f"state.{state_of(record)}"]
    yield layout["limits.card_count"], len(record.slices)
    for index, part in enumerate(record.slices):
        base = layout["limits.card"] + index * layout["limits.card.bytes"]
        card = {
            **_memory(record, part, capacity),
            **compute(record, part, compute_ceiling, rates.get(part.card)),
            "memory_report": layout["report.limit"],
            "context_bytes": context_bytes,
            "compute_mode": layout["compute.elastic" if is_elastic(record, part) else "compute.hard"],
        }
        for name, value in card.items():
            yield base + layout[f"limits.card.{name}"], value
        first, second = uuid_words(part.card)
        yield base + layout["limits.card.uuid"], first
        yield base + layout["limits.card.uuid"] + 8, second


def share_of(memory_limit: int, guarantee_ppm: int) -> Share:
    """Return the share that a card's words grant."""
    return Share(memory_limit // MEMORY_UNIT, guarantee_ppm // PPM_OF_CORE)


def is_elastic(record: SlotRecord, part: SliceRecord) -> bool:
    """Tell whether a slice may have more than its guarantee; a released one has nothing to exceed."""
    return record.compute == "elastic" and part.target.cores > 0


def compute(record: SlotRecord, part: SliceRecord, card_ceiling: int, rate: int | None) -> dict[str, int]:
    """Return the words of a slice's compute share, with `rate` in force where the slice may have it.

    Hard: rate, guarantee and ceiling are the cores. Elastic: the cores are the guarantee, and the
    ceiling is the slot's maximum on this card or `card_ceiling`, whichever is less.
    """
    guarantee = part.target.cores * PPM_OF_CORE
    ceiling = guarantee
    if is_elastic(record, part):
        most = record.maximum.cores // len(record.slices) * PPM_OF_CORE
        ceiling = max(guarantee, min(most, card_ceiling, WHOLE_CARD))
    return {
        "rate_ppm": guarantee if rate is None else max(guarantee, min(rate, ceiling)),
        "guarantee_ppm": guarantee,
        "ceiling_ppm": ceiling,
        # of an elastic slot the library derives it from the rate in force
        "burst_ns": 0 if is_elastic(record, part) else part.target.cores * _BURST_NS_OF_CORE,
    }


def _memory(record: SlotRecord, part: SliceRecord, capacity: Mapping[str, int]) -> dict[str, int]:
    most = record.maximum.units // len(record.slices)
    ceiling = 0 if record.releasing else max(min(most, capacity.get(part.card, most)), part.target.units)
    return {
        "memory_limit": part.target.units * MEMORY_UNIT,
        "memory_ceiling": ceiling * MEMORY_UNIT,
    }
