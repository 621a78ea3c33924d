"""A snapshot with something of everything, and pages read back as a monitoring system reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gaia_plugin.agent.meters import GPUNODE, Outcome
from gaia_plugin.metrics.snapshot import CardFigures, Part, SlotFigures, Snapshot, Watched
from gaia_plugin.metrics.tally import Tally
from gaia_plugin.shares import Share

CARD = "GPU-00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True)
class Told:
    """A page, taken apart."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    kinds: dict[str, str]

    @classmethod
    def read(cls, text: bytes) -> Told:
        samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        kinds: dict[str, str] = {}
        for family in text_string_to_metric_families(text.decode()):
            assert family.name not in kinds, f"{family.name} is told twice"
            kinds[family.name] = family.type
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in samples, f"{sample} is told twice"
                samples[key] = sample.value
        return cls(samples, kinds)

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name with at least these labels."""
        (found,) = self.all(name, **labels)
        return found

    def all(self, name: str, **labels: str) -> list[float]:
        wanted = set(labels.items())
        return [value for (each, has), value in self.samples.items() if each == name and wanted <= has]

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(has) for each, has in self.samples if each == name]


@pytest.fixture
def read() -> Callable[[bytes], Told]:
    return Told.read


def full(node: str = "node1") -> Snapshot:
    """Everything that can be told is told."""
    tally = Tally(clock=lambda: 1_800_000_000.0)
    tally.resized(0.004, Outcome.OK)
    tally.prestart(0.3, Outcome.REFUSED)
    tally.refused("card_full")
    tally.allocated()
    tally.wrote(GPUNODE, Outcome.OK)
    part = Part(CARD, Share(16, 25), Share(8, 10), Share(12, 25), 700, 0.1, 0.5, 0.4, 12.5)
    on_node = bool(node)
    slot = SlotFigures(
        slot="a-slot", owner="uid-1" if on_node else "alice", state="draining", parts=(part,),
        container="main" if on_node else "", label="team/trainer" if on_node else "",
    )  # fmt: skip
    card = CardFigures(CARD, 0, "Played 24", True, Share(94, 100), Share(82, 75), Share(0, 0), 1234)
    watched = Watched({(CARD, "no_library"): 2}, {CARD: 3}, {"over_slot": 1}, {"0.1.0": 4})
    return Snapshot(node, "0.1.0", (slot,), (card,), tally.events(), watched if on_node else None)
