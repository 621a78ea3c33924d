"""The directories of all slots of one agent: `slots/<slot>/{limits, usage, lib}` below its state."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from gaia_plugin.ledger.records import CardCapacity, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots import limits, pages
from gaia_plugin.slots.library import library_version
from gaia_plugin.slots.members import LocalMembers, Members
from gaia_plugin.slots.names import safe_name
from gaia_plugin.slots.usage import Usage, read_usage
from gaia_plugin.units import MIB

CONTEXT_BYTES: Final = 300 * MIB
"""Charged for a process's context on a card until it has been measured."""


class SlotDirectories:
    """Makes, writes and removes slot directories; the only writer of pages.

    Methods may be called from any thread.

    Args:
        state: the agent's state directory.
        shadows: where the local shadow libraries were installed (`lib/local`).
        context_bytes: charged for a process's context on a card until it has been measured.
        compute_ceiling: ppm of a card's time that its elastic slots may have in all.
        members: knows the slots' processes; None: those of one machine.
    """

    state_mode = 0o700
    directory_mode = 0o700
    file_mode = 0o600

    def __init__(
        self,
        state: Path,
        shadows: Path,
        *,
        context_bytes: int = CONTEXT_BYTES,
        compute_ceiling: int = limits.WHOLE_CARD,
        members: Members | None = None,
    ) -> None:
        self.root = state / "slots"
        self.members = LocalMembers(self.root) if members is None else members
        self.libraries = state / "lib"
        self._shadows = shadows
        self._context_bytes = context_bytes
        self.compute_ceiling = compute_ceiling
        self._capacity: dict[str, int] = {}
        self._pages: dict[str, pages.LimitsPage] = {}
        self._rates: dict[str, dict[str, int]] = {}
        self._lock = threading.RLock()

    def close(self) -> None:
        """Unmap all pages; directories and limits stay as they are."""
        with self._lock:
            for page in self._pages.values():
                page.close()
            self._pages.clear()

    def path(self, slot: str) -> Path:
        """Return the directory of `slot`, whether it is there or not.

        Raises:
            Refusal: code ``no_such_slot``, for what could not be a slot's name.
        """
        return self.root / safe_name(slot)

    def usage_path(self, slot: str) -> Path:
        """Return the usage page of `slot`, whether it is there or not.

        Raises:
            Refusal: code ``no_such_slot``, for what could not be a slot's name.
        """
        return self.path(slot) / "usage"

    def slots(self) -> list[str]:
        """Return the slots that have a directory."""
        try:
            return sorted(entry.name for entry in self.root.iterdir() if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def create(self, record: SlotRecord, cards: Iterable[CardCapacity], driver: Path) -> Path:
        """Make the directory of a slot, or what of it is missing or damaged, and store its limits.

        For a new slot and for recovery alike: what is sound stays, so running programs keep their
        pages and library.

        Raises:
            Unusable: libraries are missing, see `library_version`.
            OSError: the directory cannot be written.
        """
        directory = self.path(record.slot)
        with self._lock:
            self._capacity.update({card.uuid: card.units for card in cards})
            version = self._library(driver)
            for made, mode in ((self.root, self.state_mode), (directory, self.directory_mode)):
                if not made.is_dir():
                    made.mkdir(mode=mode, parents=True, exist_ok=True)
                made.chmod(mode)
            self._furnish(record.slot, version)
            self.store(record)
        return directory

    def _library(self, driver: Path) -> Path:
        """Return the directory with the libraries for a slot in front of `driver`."""
        return library_version(self.libraries, self._shadows, driver)

    def _furnish(self, slot: str, version: Path) -> None:
        """Put library and usage page into the slot's directory, where they are not sound already."""
        directory = self.path(slot)
        self._link(directory / "lib", version)
        if read_usage(directory / "usage", 0).damaged:
            pages.create_usage(directory / "usage", self.file_mode)

    def store(self, record: SlotRecord) -> None:
        """Put the slot's target in force: its limits page says the same afterwards, for everybody.

        Made anew when it is damaged. The caller has committed `record` to the ledger before.

        Raises:
            OSError: the page cannot be written.
        """
        with self._lock:
            try:
                self._store(record)
            except pages.PageDamaged:
                self._forget(record.slot)
                pages.create_limits(self.path(record.slot) / "limits", self.file_mode)
                self._store(record)

    def _store(self, record: SlotRecord) -> None:
        page, numbers = self._page(record.slot), pages.layout()
        with page.group():
            rates = self._rates.get(record.slot, limits.NO_RATES)
            words = limits.words(
                record, self._capacity, self._context_bytes, numbers, self.compute_ceiling, rates
            )
            for offset, value in words:
                page.store(offset, value)
            for index, word in enumerate(_boot_words()):
                page.store(numbers["limits.boot_id"] + 8 * index, word)
        self._rates[record.slot] = {}
        for index, part in enumerate(record.slices):
            base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
            self._rates[record.slot][part.card] = page.load(base + numbers["limits.card.rate_ppm"])
            page.wake(base + numbers["limits.card.futex"])
        page.heartbeat()

    def rates(self, slot: str) -> Mapping[str, int]:
        """Return the compute rates in force by card, in ppm; of a slot that was not stored: none."""
        with self._lock:
            return dict(self._rates.get(slot, limits.NO_RATES))

    def store_rate(self, record: SlotRecord, card: str, rate: int) -> None:
        """Put a compute rate (ppm) in force on one card, and wake the launches that wait for it.

        Raises:
            PageDamaged: the page has to be stored anew.
        """
        numbers = pages.layout()
        index = next(i for i, part in enumerate(record.slices) if part.card == card)
        base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
        with self._lock:
            self.heartbeat(record.slot)  # a page that was cut short must not be touched
            page = self._page(record.slot)
            page.store(base + numbers["limits.card.rate_ppm"], rate)
            self._rates.setdefault(record.slot, {})[card] = rate
            page.wake(base + numbers["limits.card.futex"])

    def heartbeat(self, slot: str) -> None:
        """Tell the slot's processes that the agent lives.

        Raises:
            PageDamaged: the page has to be stored anew.
        """
        with self._lock:
            try:
                self._page(slot).heartbeat()
            except pages.PageDamaged:
                self._forget(slot)
                raise

    def store_overhead(self, slot: str, place: int, owner: int, overhead: Sequence[int]) -> None:
        """Say what a process uses beyond its claims, in bytes by card in the order of the slices.

        Args:
            slot: its name.
            place: index of the process in the pages.
            owner: its owner word; 0 takes the figures back, and the context's default counts again.
            overhead: bytes; cards left out are 0.

        Raises:
            PageDamaged: the page has to be stored anew.
        """
        numbers = pages.layout()
        base = numbers["limits.process"] + place * numbers["limits.process.bytes"]
        with self._lock:
            page = self._page(slot)
            with page.group():
                mark = base + numbers["limits.process.owner"]
                if page.load(mark) != owner:
                    page.store(mark, 0)  # else the last owner's figures would count for this one
                for card in range(numbers["cards"]):
                    value = overhead[card] if card < len(overhead) else 0
                    page.store(base + numbers["limits.process.overhead"] + 8 * card, value)
                page.store(mark, owner)

    def in_force(self, record: SlotRecord) -> dict[str, Share]:
        """Return what the page grants now, by card.

        Raises:
            PageDamaged: there is no sound page.
        """
        numbers = pages.layout()
        granted = {}
        with self._lock:
            page = self._page(record.slot)
            for index, part in enumerate(record.slices):
                base = numbers["limits.card"] + index * numbers["limits.card.bytes"]
                memory = page.load(base + numbers["limits.card.memory_limit"])
                guarantee = page.load(base + numbers["limits.card.guarantee_ppm"])
                granted[part.card] = limits.share_of(memory, guarantee)
        return granted

    def usage(self, slot: str) -> Usage:
        """Return what the slot's processes claim; their cards are in the order of its slices."""
        return read_usage(
            self.usage_path(slot), pages.layout()["cards"], partial(self.members.host_pid, slot)
        )

    def pending(self, record: SlotRecord) -> Mapping[str, int] | None:
        """Return the bytes announced by card UUID; None when the usage page is damaged."""
        usage = self.usage(record.slot)
        if usage.damaged:
            return None
        return {part.card: usage.pending(index) or 0 for index, part in enumerate(record.slices)}

    def remove(self, slot: str) -> None:
        """Remove the directory of a slot that holds nothing; nothing happens when there is none."""
        directory = self.path(slot)
        with self._lock:
            self._forget(slot)
            self._rates.pop(slot, None)
            gone = self.root / f".gone-{directory.name}"
            shutil.rmtree(gone, ignore_errors=True)
            try:
                # in one step: half a slot's directory never looks like a slot
                directory.rename(gone)
            except FileNotFoundError:
                return
            shutil.rmtree(gone, ignore_errors=True)

    def clear(self, known: Collection[str]) -> None:
        """Remove what a removal that failed has left, that of the slots in `known` excepted.

        Raises:
            OSError: something cannot be removed now.
        """
        with self._lock:
            for gone in self.root.glob(".gone-*"):
                shutil.rmtree(gone)
            for slot in set(self.slots()) - set(known):
                self.remove(slot)

    def _page(self, slot: str) -> pages.LimitsPage:
        page = self._pages.get(slot)
        if page is None:
            page = self._pages[slot] = pages.LimitsPage(self.path(slot) / "limits")
        return page

    def _forget(self, slot: str) -> None:
        page = self._pages.pop(slot, None)
        if page is not None:
            page.close()

    @staticmethod
    def _link(link: Path, version: Path) -> None:
        if link.is_symlink() and link.exists():
            return
        aside = link.with_name(".lib.new")
        aside.unlink(missing_ok=True)
        aside.symlink_to(os.path.relpath(version, link.parent))
        aside.rename(link)


def _boot_words() -> tuple[int, int]:
    text = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    return int(text[:16], 16), int(text[16:], 16)
