"""From totals to shares: how an amount is divided over the cards of a slot."""

from __future__ import annotations

from collections.abc import Mapping

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger.records import SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT, format_cores, format_memory


def split(record: SlotRecord, units: int | None, cores: int | None) -> Mapping[str, Share]:
    """Divide totals evenly over the cards of `record`; None leaves a respect as it is.

    Raises:
        Refusal: code ``invalid_amount``, when an amount does not divide; names the nearest that do.
    """
    count = len(record.slices)
    part_units = None if units is None else _part(units, count, "memory", MEMORY_UNIT)
    part_cores = None if cores is None else _part(cores, count, "cores", None)
    return {
        part.card: Share(
            part.target.units if part_units is None else part_units,
            part.target.cores if part_cores is None else part_cores,
        )
        for part in record.slices
    }


def _part(amount: int, count: int, what: str, unit: int | None) -> int:
    each, rest = divmod(amount, count)
    if not rest:
        return each
    below, above = each * count, (each + 1) * count

    def text(value: int) -> str:
        return format_cores(value) if unit is None else format_memory(value * unit)

    nearest = text(above) if not below else f"{text(below)} or {text(above)}"
    offer = below or above
    raise Refusal(
        Code.INVALID_AMOUNT,
        f"This slot has {count} cards and {text(amount)} of {what} cannot be divided over them evenly; "
        f"the nearest that can: {nearest}.",
        best_memory=None if unit is None else offer * unit,
        best_cores=offer if unit is None else None,
    )
