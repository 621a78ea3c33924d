"""Slots on cards with real pages, a played clock and a played driver: the bench of the tests of `Compute`."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.agent.compute import EVERY, Compute
from gaia_plugin.agent.elastic import WHOLE
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.api import models
from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Use
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots import pages
from gaia_plugin.slots.directory import SlotDirectories

CARD, OTHER = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
CORE = 10_000
FULL = (100.0, 0.0)
"""Busy all the time, and never waiting."""


def slot(name: str, cores: int, mode: str = "hard", most: int = 100, cards: tuple[str, ...] = (CARD,)) -> Any:
    share = Share(4, cores)
    slices = tuple(SliceRecord(card, share, share, share) for card in cards)
    return SlotRecord(name, name, "", 1, False, mode, Share(94, most), slices, None, None, time.time())


@dataclass
class Driver:
    """Says what a test lets it say; `asked` are the cards that it was asked about."""

    answers: list[tuple[Use, ...] | Refusal] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        self.asked.append(uuid)
        answer = self.answers.pop(0) if self.answers else ()
        if isinstance(answer, Refusal):
            raise answer
        return tuple(use for use in answer if use.at > since)


@dataclass
class Bench:
    """Slots on cards. `work` says in percent how each slot's process spends the next step."""

    directories: SlotDirectories
    driver: Driver
    records: dict[str, SlotRecord] = field(default_factory=dict)
    now: float = 1000.0
    words: dict[str, list[int]] = field(default_factory=dict)
    blind: dict[str, int] = field(default_factory=dict)
    run: list[Callable[[], None]] = field(default_factory=list)
    hang: bool = False

    def __post_init__(self) -> None:
        gauge = Gauge(self.driver, lambda run: None if self.hang else run())
        self.compute = Compute(self.directories, gauge, lambda: self.now)

    def add(self, record: SlotRecord, driver: Path) -> None:
        self.records[record.slot] = record
        self.words[record.slot] = [0, 0, 0]
        capacities = [CardCapacity(card, i, "Played", 94) for i, card in enumerate((CARD, OTHER))]
        self.directories.create(record, capacities, driver)

    def pid(self, name: str) -> int:
        return 100 + list(self.records).index(name)

    def step(self, times: int = 1, **work: tuple[float, float]) -> None:
        """Let the slots be busy and wait for (percent, percent) of a step, then divide anew."""
        for _ in range(times):
            self.now += EVERY
            for name, (busy, waited) in work.items():
                words = self.words[name]
                words[0] += int(busy * EVERY * 1e7)
                words[1] += int(waited * EVERY * 1e7)
                words[2] += 1
                self._write(name)
            self.compute.step(list(self.records.values()))

    def _write(self, name: str) -> None:
        numbers = pages.layout()
        base = numbers["usage.process"]
        on_card = base + numbers["usage.process.card"]
        with open(self.directories.path(name) / "usage", "r+b") as page:
            page.seek(numbers["usage.high_water"])
            page.write(struct.pack("=Q", 1))
            page.seek(base)
            page.write(struct.pack("=Q", pages.owner_word(self.pid(name), 1)))
            values = [*self.words[name], self.blind.get(name, 0)]
            for word, value in zip(("busy_ns", "throttled_ns", "launches", "blind_ns"), values, strict=True):
                page.seek(on_card + numbers[f"usage.process.card.{word}"])
                page.write(struct.pack("=Q", value))

    def says(self, **permille: int) -> None:
        """Let the driver's next answer be this, as of now."""
        self.says_of(self.now, **permille)

    def says_of(self, *times: float, **permille: int) -> None:
        """Let the driver's next answer be this, as of these times."""
        uses = [Use(self.pid(n), int(at * 1e6), p) for at in times for n, p in permille.items()]
        self.driver.answers.append(tuple(uses))

    def rate(self, name: str, card: str = CARD) -> int:
        """Rate in force, as the page says."""
        numbers = pages.layout()
        index = [part.card for part in self.records[name].slices].index(card)
        with pages.LimitsPage(self.directories.path(name) / "limits") as page:
            at = numbers["limits.card"] + index * numbers["limits.card.bytes"]
            return page.load(at + numbers["limits.card.rate_ppm"])

    def time(self, name: str) -> models.SlotTime:
        return self.compute.measured(self.records[name])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[SlotDirectories] = []

    def make(*records: SlotRecord, ceiling: int = WHOLE) -> Bench:
        driver, shadows = tmp_path / "driver", tmp_path / "shadows"
        for directory in (driver, shadows):
            directory.mkdir()
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                (directory / name).write_bytes(b"stand-in")
        directories = SlotDirectories(tmp_path / "state", shadows, compute_ceiling=ceiling)
        made.append(directories)
        bench = Bench(directories, Driver())
        for record in records:
            bench.add(record, driver)
        bench.step()
        return bench

    yield make
    for directories in made:
        directories.close()
