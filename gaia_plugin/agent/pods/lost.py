"""Slots that the ledger has lost, put together again from what is left. Never changes anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gaia_plugin.ledger import SliceRecord, SlotRecord
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.slots import pages
from gaia_plugin.slots.limits import PPM_OF_CORE, share_of
from gaia_plugin.slots.names import slot_owner
from gaia_plugin.slots.uuids import uuid_text
from gaia_plugin.units import MEMORY_UNIT


def from_page(slot: str, directory: Path) -> SlotRecord | str:
    """Return what a slot's limits page says of it, or why it says nothing.

    What was requested is not in the page: what is in force stands in for it. The maximum is the page's
    ceiling, until the pod is seen again.
    """
    try:
        uid, container = slot_owner(slot)
    except ValueError:
        return "its name is not a slot's"
    if not container:
        return "its name names no container"
    numbers = pages.layout()
    try:
        page = pages.LimitsPage(directory / "limits")
    except (pages.PageDamaged, OSError) as fault:
        return str(fault)
    with page:
        count = min(page.load(numbers["limits.card_count"]), numbers["cards"])
        slices, ceiling, elastic = [], NOTHING, False
        for index in range(count):
            base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
            word = {
                name: page.load(base + numbers[f"limits.card.{name}"])
                for name in (
                    "memory_limit", "memory_ceiling", "guarantee_ppm", "ceiling_ppm", "compute_mode",
                )
            }  # fmt: skip
            share = share_of(word["memory_limit"], word["guarantee_ppm"])
            slices.append(SliceRecord(_uuid(page, base, numbers), share, share, share))
            most = Share(word["memory_ceiling"] // MEMORY_UNIT, word["ceiling_ppm"] // PPM_OF_CORE)
            ceiling += most.most(share)
            elastic = elastic or word["compute_mode"] == numbers["compute.elastic"]
        generation = max(1, page.load(numbers["limits.generation"]))
        releasing = page.load(numbers["limits.state"]) == numbers["state.releasing"]
    if not slices or (not releasing and all(part.target == NOTHING for part in slices)):
        return "its page gives nothing"
    if len({part.card for part in slices}) != len(slices):
        return "its page is not one that Gaia wrote"
    return SlotRecord(
        slot, uid, container, generation, releasing, "elastic" if elastic else "hard",
        ceiling, tuple(slices), None, None, time.time(),
    )  # fmt: skip


def _uuid(page: pages.LimitsPage, base: int, numbers: Mapping[str, int]) -> str:
    at = base + numbers["limits.card.uuid"]
    octets = b"".join(page.load(at + step).to_bytes(8, sys.byteorder) for step in (0, 8))
    return uuid_text(octets)


def from_shares(
    slot: str, uid: str, container: str, label: str, shares: Mapping[str, Share], maximum: Share, compute: str
) -> SlotRecord:
    """Return a slot of a container that runs, by what was written of it elsewhere."""
    slices = tuple(SliceRecord(card, share, share, share) for card, share in sorted(shares.items()))
    target = sum((part.target for part in slices), NOTHING)
    return SlotRecord(
        slot, uid, container, 1, False, compute, maximum.most(target), slices, None, None, time.time(), label
    )
