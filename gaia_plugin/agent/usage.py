"""What each slot uses: its processes' claims, and the overhead that only the driver knows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import structlog

from gaia_plugin.agent.readings import Figures
from gaia_plugin.agent.views import Measured
from gaia_plugin.api import models
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.overhead import Claim, Overhead, sampled
from gaia_plugin.slots.pages import PageDamaged
from gaia_plugin.slots.processes import process_name
from gaia_plugin.slots.usage import CardUsage, ProcessUsage, Usage

log = structlog.get_logger(__name__)


@dataclass
class _Account:
    """What is known of one process: its overhead by card, and what its page place says of it."""

    owner: int
    known: list[Overhead]
    stored: tuple[int, ...] | None = None


@dataclass
class Accounts:
    """Overheads of all processes, by slot and place. Used in one thread.

    Args:
        directories: reads usage, writes overheads.
        context: bytes that a context costs before its process was measured.
    """

    directories: SlotDirectories
    context: int
    _accounts: dict[str, dict[int, _Account]] = field(default_factory=dict)
    _outside: dict[str, Figures] = field(default_factory=dict)

    def forget(self, slot: str) -> None:
        """Forget a slot that is gone."""
        self._accounts.pop(slot, None)
        self._outside.pop(slot, None)

    def outside(self, slot: str, figures: Figures) -> None:
        """Take note of what processes of a slot have that are not in its page: bytes by card and pid."""
        self._outside[slot] = figures

    def measured(self, record: SlotRecord) -> Measured:
        """Return what the slot uses now, by the same sum that the library takes.

        What its processes have past the library is added, as it was seen last.
        """
        used = {part.card: 0 for part in record.slices}
        listed = []
        claims = self.directories.usage(record.slot).processes
        for pid, beside in self._beside(record, {process.pid for process in claims}).items():
            for card, amount in beside.items():
                used[card] += amount
            listed.append(models.Process(pid=pid, name=process_name(pid), memory=sum(beside.values())))
        for process in claims:
            shares = [self._charged(record.slot, process, index) for index in range(len(record.slices))]
            for part, share in zip(record.slices, shares, strict=True):
                used[part.card] += share
            if sum(shares):
                listed.append(
                    models.Process(pid=process.pid, name=process_name(process.pid), memory=sum(shares))
                )
        return Measured(used, tuple(sorted(listed, key=lambda each: (-each.memory, each.pid))))

    def _beside(self, record: SlotRecord, named: Collection[int]) -> dict[int, dict[str, int]]:
        """Return what is in use outside of the page, by pid and card; who is in it by now counts there."""
        seen = self._outside.get(record.slot, {})
        found: dict[int, dict[str, int]] = {}
        for part in record.slices:
            for pid, amount in seen.get(part.card, {}).items():
                if pid not in named and amount:
                    found.setdefault(pid, {})[part.card] = amount
        return found

    def _charged(self, slot: str, process: ProcessUsage, index: int) -> int:
        claim = process.cards[index]
        account = self._accounts.get(slot, {}).get(process.place)
        if account is not None and account.owner == process.owner and account.stored is not None:
            return claim.used + claim.pending + account.stored[index]
        return claim.used + claim.pending + (self.context if claim.context else 0)

    def observe(self, record: SlotRecord, before: Usage, figures: Figures) -> None:
        """Take one sample: claims read before the driver was asked, its answer, and claims read now."""
        after = {process.place: process for process in self.directories.usage(record.slot).processes}
        accounts = self._accounts.setdefault(record.slot, {})
        for place in set(accounts) - set(after):
            del accounts[place]
        for first in before.processes:
            second = after.get(first.place)
            if second is None or second.owner != first.owner:
                continue
            account = accounts.get(first.place)
            if account is None or account.owner != first.owner:
                account = accounts[first.place] = _Account(first.owner, [Overhead() for _ in record.slices])
            self._sample(record, account, first, second, figures)
            self._store(record.slot, first.place, account, second)

    def _sample(
        self,
        record: SlotRecord,
        account: _Account,
        first: ProcessUsage,
        second: ProcessUsage,
        figures: Figures,
    ) -> None:
        for index, part in enumerate(record.slices):
            one, two = first.cards[index], second.cards[index]
            figure = figures.get(part.card, {}).get(first.pid)
            charged = self.context if two.context else 0
            account.known[index] = sampled(
                account.known[index], _claim(one), figure, _claim(two), charged=charged
            )

    def _store(self, slot: str, place: int, account: _Account, process: ProcessUsage) -> None:
        known = [
            each.bytes if each.bytes is not None else (None if claim.context else 0)
            for each, claim in zip(account.known, process.cards, strict=False)
        ]
        ready = (
            None
            if None in known or not any(claim.context for claim in process.cards[: len(known)])
            else known
        )
        wanted = None if ready is None else tuple(value or 0 for value in ready)
        if wanted == account.stored:
            return
        try:
            if wanted is None:
                self.directories.store_overhead(slot, place, 0, ())
            else:
                self.directories.store_overhead(slot, place, account.owner, wanted)
        except (PageDamaged, OSError) as error:
            log.warning("overhead not stored", slot=slot, why=str(error))
            return
        account.stored = wanted


def _claim(usage: CardUsage) -> Claim:
    return Claim(usage.used, usage.pending, usage.returns)
