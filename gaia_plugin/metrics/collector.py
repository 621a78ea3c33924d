"""Turns a snapshot into the text that Prometheus reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gaia_plugin.metrics import families as f
from gaia_plugin.metrics.families import Family
from gaia_plugin.metrics.snapshot import CardFigures, Events, Part, SlotFigures, Snapshot, Timings, Watched
from gaia_plugin.metrics.tally import BOUNDS
from gaia_plugin.units import MEMORY_UNIT

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_VERSIONS: Final = 16
"""Versions of the library that are told apart: a usage page is its tenant's, who can write any into it."""

_OTHERS: Final = "(others)"

Told = Iterable[tuple[Family, tuple[str, ...], float]]
"""Metrics, the values of their own labels, and what they are."""


def render(snapshot: Snapshot) -> bytes:
    """Return the snapshot as text, in Prometheus' format 0.0.4, with what this process costs."""
    # a registry of our own for each page: nothing that other code registers gets into it
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SnapshotCollector(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class SnapshotCollector(Collector):
    """Tells one snapshot, every family of `families.FAMILIES` exactly once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._node = (snapshot.node,) if snapshot.node else ()

    def collect(self) -> Iterator[Metric]:
        """Yield all families, also those that have nothing to tell at the moment."""
        on_node = bool(self._node)
        plain: dict[Family, CounterMetricFamily | GaugeMetricFamily] = {}
        histograms: dict[Family, HistogramMetricFamily] = {}
        for family in f.FAMILIES:
            labels = f.labels_of(family, on_node=on_node)
            if family.kind == "histogram":
                histograms[family] = HistogramMetricFamily(family.name, family.meaning, labels=labels)
            else:
                kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                plain[family] = kind(family.name, family.meaning, labels=labels)
        for family, values, value in self._values():
            plain[family].add_metric((*self._node, *values), value)
        for family, times in _times(self._snapshot.events):
            histograms[family].add_metric(self._node, buckets=_buckets(times), sum_value=times.seconds)
        yield from (plain.get(family) or histograms[family] for family in f.FAMILIES)

    def _values(self) -> Told:
        for card in self._snapshot.cards:
            for family, own, value in _of_card(card):
                yield family, (card.uuid, *own), value
        for slot in self._snapshot.slots:
            whose = _whose(slot) if self._node else (slot.owner, slot.slot)
            for state in f.SLOT_STATES:
                yield f.SLOT_STATE, (*whose, state), state == slot.state
            for part in slot.parts:
                for family, own, value in _of_part(part):
                    yield family, (*whose, part.card, *own), value
        if self._snapshot.watched is not None:
            yield from _of_watched(self._snapshot.watched, [card.uuid for card in self._snapshot.cards])
        yield f.BUILD_INFO, (self._snapshot.version,), 1
        yield from _of_events(self._snapshot.events)


def _whose(slot: SlotFigures) -> tuple[str, ...]:
    namespace, _, pod = slot.label.partition("/")
    return namespace, pod, slot.container, slot.owner


def _of_part(part: Part) -> Told:
    for family, share in (
        (f.MEMORY_REQUESTED, part.requested),
        (f.MEMORY_GRANTED, part.granted),
        (f.MEMORY_HELD, part.held),
    ):
        yield family, (), share.units * MEMORY_UNIT
    for family, share in (
        (f.COMPUTE_REQUESTED, part.requested),
        (f.COMPUTE_GRANTED, part.granted),
        (f.COMPUTE_HELD, part.held),
    ):
        yield family, (), share.cores / 100
    yield f.MEMORY_USED, (), part.used
    yield f.COMPUTE_GUARANTEE, (), part.guarantee
    yield f.COMPUTE_LIMIT, (), part.limit
    yield f.COMPUTE_USED, (), part.busy
    yield f.THROTTLED, (), part.throttled


def _of_card(card: CardFigures) -> Told:
    yield f.CARD_INFO, (card.model, str(card.index)), 1
    yield f.CARD_MEMORY, (), card.capacity.units * MEMORY_UNIT
    yield f.CARD_MEMORY_FREE, (), card.free.units * MEMORY_UNIT
    yield f.CARD_MEMORY_OVER, (), card.over.units * MEMORY_UNIT
    if card.used is not None:
        yield f.CARD_MEMORY_USED, (), card.used
    yield f.CARD_COMPUTE, (), card.capacity.cores / 100
    yield f.CARD_COMPUTE_FREE, (), card.free.cores / 100
    yield f.CARD_HEALTHY, (), card.healthy


def _of_watched(watched: Watched, cards: Sequence[str]) -> Told:
    # what there is none of is 0, not missing: else an increase from nothing to 1 is never seen
    none = {(card, kind): 0 for card in cards for kind in f.WRONGS}
    for place, processes in {**none, **watched.unmanaged}.items():
        yield f.UNMANAGED, place, processes
    for card in cards:
        yield f.CARD_MEMORY_FOREIGN, (card,), watched.foreign.get(card, 0) * MEMORY_UNIT
    for kind, containers in {**dict.fromkeys(f.WRONGS, 0), **watched.stopped}.items():
        yield f.STOPPED, (kind,), containers
    for version, processes in _bounded(watched.libraries):
        yield f.LIBRARIES, (version,), processes


def _bounded(versions: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield the versions that most processes have, the others together."""
    most = Counter(versions).most_common()
    told, rest = most[:_VERSIONS], sum(count for _, count in most[_VERSIONS:])
    yield from told
    if rest:
        yield _OTHERS, rest


def _of_events(events: Events) -> Told:
    for outcome, count in events.resizes.items():
        yield f.RESIZES, (outcome,), count
    for code, count in events.refusals.items():
        yield f.REFUSALS, (code,), count
    for outcome, count in events.prestarts.items():
        yield f.PRESTARTS, (outcome,), count
    for (what, outcome), count in events.writes.items():
        yield f.WRITES, (what, outcome), count
    yield f.ALLOCATIONS, (), events.allocations
    if events.heartbeat is not None:
        yield f.HEARTBEAT, (), events.heartbeat


def _times(events: Events) -> tuple[tuple[Family, Timings], ...]:
    return (f.RESIZE_SECONDS, events.resize_times), (f.PRESTART_SECONDS, events.prestart_times)


def _buckets(times: Timings) -> list[tuple[str, float]]:
    bounds = [*map(str, BOUNDS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(times.counts)), strict=True))
