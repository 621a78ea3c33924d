"""What metrics tell of a node: read in small steps, so that nothing waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from gaia_plugin import __version__
from gaia_plugin.agent.core import Core
from gaia_plugin.agent.node import PATIENCE, LocalNode
from gaia_plugin.agent.views import state_of
from gaia_plugin.errors import Refusal
from gaia_plugin.ledger import SliceRecord, SlotRecord
from gaia_plugin.metrics.snapshot import CardFigures, Part, SlotFigures, Snapshot, Watched
from gaia_plugin.metrics.tally import Tally
from gaia_plugin.shares import NOTHING

_AT_ONCE: Final = 8
"""Slots that are read in one step: some milliseconds, in which a resize would wait."""


class Figures:
    """Takes snapshots of a node.

    Args:
        node: the node.
        tally: what happened.
        name: the node's name in its cluster; empty on a single machine.
        watched: returns what a watchdog has found; None: there is none.
    """

    def __init__(
        self,
        node: LocalNode,
        tally: Tally,
        *,
        name: str = "",
        watched: Callable[[], Watched] | None = None,
    ) -> None:
        self._node = node
        self._tally = tally
        self._name = name
        self._watched = watched

    async def snapshot(self) -> Snapshot:
        """Return how the node stands.

        Raises:
            Refusal, Unusable: the ledger cannot be read.
        """
        cards = await self._measured(await self._node.do(_cards, self._node.core))
        names = [record.slot for record in await self._node.do(self._node.core.ledger.slots)]
        slots: list[SlotFigures] = []
        for begin in range(0, len(names), _AT_ONCE):
            slots += await self._node.do(_slots, self._node.core, names[begin : begin + _AT_ONCE])
        watched = None if self._watched is None else self._watched()
        return Snapshot(self._name, __version__, tuple(slots), cards, self._tally.events(), watched)

    async def _measured(self, cards: Sequence[CardFigures]) -> tuple[CardFigures, ...]:
        used: Mapping[str, int] = {}
        # of a driver that is slow nothing is told, rather than what was true some time ago
        with suppress(TimeoutError, Refusal):
            async with asyncio.timeout(PATIENCE):
                used = await self._node.ask(
                    self._node.reader.used, [each.uuid for each in cards if each.healthy]
                )
        return tuple(replace(card, used=used.get(card.uuid)) for card in cards)


def _cards(core: Core) -> list[CardFigures]:
    free, over = core.ledger.free(), core.ledger.overbooked()
    return [
        CardFigures(
            uuid=card.uuid,
            index=card.index,
            model=card.name,
            healthy=card.healthy,
            capacity=card.share,
            free=free.get(card.uuid, NOTHING) if card.healthy else NOTHING,
            over=over.get(card.uuid, NOTHING),
        )
        for card in core.ledger.cards()
    ]


def _slots(core: Core, names: Sequence[str]) -> list[SlotFigures]:
    """Read some slots; those that are gone meanwhile are left out."""
    found = []
    for name in names:
        with suppress(Refusal):
            record = core.ledger.slot(name)
            found.append(
                SlotFigures(
                    slot=record.slot,
                    owner=record.owner,
                    state="making" if record.reserved else state_of(record),
                    parts=tuple(_parts(core, record)),
                    container=record.name,
                    label=record.label,
                )
            )
    return found


def _parts(core: Core, record: SlotRecord) -> Iterator[Part]:
    used = core.accounts.measured(record).used
    times = {time.uuid: time for time in core.compute.measured(record).cards}
    waited = core.compute.waited(record)
    for part in record.slices:
        time = times[part.card]
        yield _part(
            part, used.get(part.card, 0), (time.guaranteed, time.limit, time.used), waited.get(part.card, 0.0)
        )


def _part(part: SliceRecord, used: int, permille: tuple[int, int, int], waited: float) -> Part:
    guarantee, limit, busy = (each / 1000 for each in permille)
    return Part(part.card, part.requested, part.target, part.held, used, guarantee, limit, busy, waited)
