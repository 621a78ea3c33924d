"""Compute shares in force: reads what slots use, decides by `elastic`, writes the rates. In one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from gaia_plugin.agent import elastic, turns
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.agent.meter import Meter
from gaia_plugin.agent.truth import STEP, CardTruth
from gaia_plugin.api import models
from gaia_plugin.ledger import SliceRecord, SlotRecord
from gaia_plugin.slots import limits
from gaia_plugin.slots.counters import CounterPages, Counters, ProcessCounters
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.pages import PageDamaged
from gaia_plugin.slots.processes import stat

EVERY: Final = STEP
"""Seconds between two steps."""

ALONE_SECONDS: Final = 0.9
"""Seconds of a driver's figures that it takes to correct a slot that is alone."""
SLOWLY: Final = 5.0
"""By how much slower a raise fades while the slot does not want it."""

SUDDEN: Final = 50_000
"""Ppm by which a share changes much: 5 % of a card."""

BLIND_SECONDS: Final = 5.0
"""Seconds for which it is told that events failed."""
NO_EVENTS: Final = (
    "The driver refuses the events by which GPU time is measured, so programs are watched from outside: "
    "the share is never exceeded, and somewhat less of it is used."
)
STOPPED: Final = frozenset("Tt")

log = structlog.get_logger(__name__)

_Tenants = list[tuple[SlotRecord, SliceRecord]]


class Place(NamedTuple):
    """A slot on a card."""

    slot: str
    card: str


@dataclass
class _State:
    """What is remembered of a slot on a card from one step to the next."""

    meter: Meter = field(default_factory=Meter)
    pids: frozenset[int] = frozenset()
    trim: float = 1.0
    """Factor by which its rate was found wrong beside others."""
    alone: float = 1.0
    """The same while it is alone."""
    share: int | None = None
    stretch: float = 1.0
    """How much longer its events take than its share, because other slots have their turns."""
    shared: bool = False
    changed: float = float("-inf")
    """When its rate or its company last changed much; figures of before say nothing of now."""
    corrected: float = float("-inf")
    """When it was last corrected while it was alone."""
    note: str = ""
    blind_ns: int = 0
    """When its processes last had to do without events."""


class Compute:
    """The compute shares of all slots.

    Args:
        directories: pages are read and written through it.
        gauge: what the driver says; None: it is never asked.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        directories: SlotDirectories,
        gauge: Gauge | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directories = directories
        self._gauge = gauge
        self._clock = clock
        self._states: dict[Place, _State] = {}
        self._truths: dict[str, CardTruth] = {}
        self._at: float | None = None
        self._pages = CounterPages(directories.usage_path)
        self._records: Sequence[SlotRecord] = ()
        self._living: list[SlotRecord] = []
        self._tenants: dict[str, _Tenants] = {}
        self._resting: dict[str, tuple[ProcessCounters, ...]] = {}
        """Slots that have done nothing for a while, and the counters that stand still since then."""
        self._settled: dict[str, _Tenants] = {}
        """Cards on which all slots rest and whose rates have been found: nothing new follows for them."""
        self._decided: dict[str, float] = {}
        """When rates were last found, by card."""

    def forget(self, slot: str) -> None:
        """Forget a slot that is gone."""
        self._pages.forget(slot)
        self._resting.pop(slot, None)
        for place in [place for place in self._states if place.slot == slot]:
            del self._states[place]

    def step(self, records: Sequence[SlotRecord]) -> None:
        """Look at what every slot uses, and put the rates in force that follow."""
        now, before = self._clock(), self._at
        if before is not None and now < before:
            # a clock that was set back: nothing that was noted until now can be compared with what comes
            for noted in (self._states, self._truths, self._resting, self._settled, self._decided):
                noted.clear()
            before = None
        self._at = now
        self._sort(records)
        self._observe(now if before is None else before, now)
        wanted: dict[Place, int] = {}
        for card, tenants in self._tenants.items():
            rests = all(record.slot in self._resting for record, _ in tenants)
            if rests and self._settled.get(card) == tenants:
                continue
            elapsed = now - self._decided.get(card, now)
            wanted.update(self._card(card, tenants, now, elapsed))
            self._decided[card] = now
            if rests:
                self._settled[card] = tenants
            else:
                self._settled.pop(card, None)
        self._store(self._living, wanted)
        if self._gauge is not None:
            self._gauge.ask(
                card for card, tenants in self._tenants.items() if any(self._active(r, p) for r, p in tenants)
            )

    def _sort(self, records: Sequence[SlotRecord]) -> None:
        """Note who is on which card, unless it is as before; most of the time it is."""
        if records == self._records:
            return
        self._records = list(records)
        self._living = [record for record in records if not record.releasing]
        self._tenants = {}
        for record in self._living:
            for part in record.slices:
                self._states.setdefault(Place(record.slot, part.card), _State())
                self._tenants.setdefault(part.card, []).append((record, part))

    def _active(self, record: SlotRecord, part: SliceRecord) -> bool:
        return record.slot not in self._resting and self._state(record, part).meter.active

    def _state(self, record: SlotRecord, part: SliceRecord) -> _State:
        return self._states.setdefault(Place(record.slot, part.card), _State())

    # -- looking

    def _observe(self, before: float, now: float) -> None:
        answers = {} if self._gauge is None else self._gauge.take()
        working: set[str] = set()
        for record in self._living:
            processes = self._pages.read(record.slot, len(record.slices))
            rested = self._resting.get(record.slot)
            if rested is processes and not (processes and self._busy(record, now)):
                continue
            if rested is not None:
                self._wake(record, rested, before)
            self._look(record, processes, now, working)
        for card in self._tenants:
            truth = self._truths.setdefault(card, CardTruth())
            truth.step(now, answers.get(card), card in working and self._gauge is not None)

    def _busy(self, record: SlotRecord, now: float) -> bool:
        """Tell whether the driver says that a slot works whose own counters stand still."""
        return any(self._by_driver(record, part, now) for part in record.slices)

    def _by_driver(self, record: SlotRecord, part: SliceRecord, now: float) -> int | None:
        truth = self._truths.get(part.card)
        return None if truth is None else truth.of(self._state(record, part).pids, now)

    def _wake(self, record: SlotRecord, rested: Sequence[ProcessCounters], before: float) -> None:
        del self._resting[record.slot]
        for index, part in enumerate(record.slices):
            self._state(record, part).meter.rest(before, _counters(rested, index))

    def _look(
        self, record: SlotRecord, processes: tuple[ProcessCounters, ...], now: float, working: set[str]
    ) -> None:
        rates, rests = self._directories.rates(record.slot), True
        pids = frozenset(process.pid for process in processes)
        for index, part in enumerate(record.slices):
            state, counters = self._state(record, part), _counters(processes, index)
            state.pids = pids
            state.blind_ns = max((each.blind_ns for each in counters.values()), default=0)
            driver = self._by_driver(record, part, now)
            state.meter.step(now, counters, rates.get(part.card, 0), driver)
            if state.meter.active:
                working.add(part.card)
                rests = False
        if rests:
            self._resting[record.slot] = processes

    # -- deciding

    def _card(
        self, card: str, tenants: Sequence[tuple[SlotRecord, SliceRecord]], now: float, elapsed: float
    ) -> dict[Place, int]:
        """Return the rates of all slots on one card."""
        truth, ceiling = self._truths[card], self._directories.compute_ceiling
        states = [self._state(*each) for each in tenants]
        shares = elastic.shares(
            [self._tenant(*each, state) for each, state in zip(tenants, states, strict=True)], ceiling
        )
        # what must not be exceeded, and what nobody measures, is not to rest on a guess of the others' turns
        blind = self._gauge is None or bool(truth.blind(now))
        cautious = [blind and not limits.is_elastic(*each) for each in tenants]
        stretches = turns.stretches([_load(*each) for each in zip(states, shares, cautious, strict=True)])
        everybody = {pid for state in states for pid in state.pids}
        active = sum(state.meter.active for state in states) + (truth.others(everybody, now) > 0)
        # one that comes back uses what it saved up, and that share is not the one it is to be held to
        bursts = any(state.meter.bursts(share) for state, share in zip(states, shares, strict=True))
        rates = {}
        for (record, part), state, share, stretch in zip(tenants, states, shares, stretches, strict=True):
            shared = active > 1 or state.meter.working > 1
            self._note_change(state, share, stretch, shared, bursts, now)
            state.note = truth.blind(now) if state.meter.active else ""
            # a hard slot is measured below the whole card only, and who is granted all of it needs no measure
            whole = part.target.cores * limits.PPM_OF_CORE >= elastic.WHOLE
            most = elastic.WHOLE if whole or limits.is_elastic(record, part) else elastic.MEASURED
            self._trim(state, truth, now, elapsed, most)
            rates[Place(record.slot, card)] = elastic.bounded(share, _base(state, most) * _trim(state), most)
        return rates

    def _tenant(self, record: SlotRecord, part: SliceRecord, state: _State) -> elastic.Tenant:
        words = limits.compute(record, part, self._directories.compute_ceiling, None)
        return elastic.Tenant(
            limits.is_elastic(record, part),
            words["guarantee_ppm"],
            words["ceiling_ppm"],
            state.meter.demand(words["guarantee_ppm"], state.stretch),
        )

    @staticmethod
    def _note_change(
        state: _State, share: int, stretch: float, shared: bool, bursts: bool, now: float
    ) -> None:
        before = (state.share or 0) * state.stretch
        sudden = state.share is not None and abs(share * stretch - before) >= SUDDEN
        if sudden or bursts or shared != state.shared:
            state.changed = now
        state.share, state.stretch, state.shared = share, stretch, shared

    @staticmethod
    def _trim(state: _State, truth: CardTruth, now: float, elapsed: float, most: int) -> None:
        share, measured = state.share or 0, truth.of(state.pids, now)
        if not state.shared:
            state.trim = elastic.faded(state.trim, elapsed)
            _trim_alone(state, truth, now, elapsed, most)
            return
        state.alone = elastic.faded(state.alone, elapsed)
        if measured is None or truth.blind(now):
            state.trim = elastic.faded(state.trim, elapsed)
        elif now - state.changed <= truth.covers:
            return
        elif truth.fresh and share and (state.meter.held_back or measured > share):
            # one that gets less than its share because it wants no more is not to be raised
            trim = elastic.trimmed(state.trim, share, measured, truth.elapsed)
            state.trim = _within(trim, state, most)

    # -- writing

    def _store(self, records: Iterable[SlotRecord], wanted: Mapping[Place, int]) -> None:
        slots = {place.slot for place in wanted}
        by_slot = {record.slot: record for record in records if record.slot in slots}
        before = {
            Place(slot, card): rate
            for slot in by_slot
            for card, rate in self._directories.rates(slot).items()
        }
        # what no page says yet is stored as a whole first, with the slot's other words
        down, up = elastic.in_order(before, {place: wanted[place] for place in before if place in wanted})
        for place, rate in [*down, *up]:
            self._store_one(by_slot[place.slot], place.card, rate)

    def _store_one(self, record: SlotRecord, card: str, rate: int) -> None:
        try:
            self._directories.store_rate(record, card, rate)
        except (PageDamaged, OSError) as error:
            # the next sign of life finds the page damaged too, and makes it anew
            log.warning("rate not stored", slot=record.slot, why=str(error))

    def leave(self, records: Iterable[SlotRecord]) -> None:
        """Put every rate back to the guarantee: nobody is going to lend, take back and correct any more.

        A rate in force among busy neighbours is above the share; without them it would be too much.
        """
        for record in records:
            try:
                self._directories.heartbeat(record.slot)  # a page that was cut short must not be touched
            except (PageDamaged, OSError) as error:
                log.warning("rates not put back", slot=record.slot, why=str(error))
                continue
            for part in record.slices:
                self._store_one(record, part.card, part.target.cores * limits.PPM_OF_CORE)

    # -- telling

    def measured(self, record: SlotRecord) -> models.SlotTime:
        """Return what the slot has of its cards' time and what it uses."""
        cards = tuple(self._card_time(record, part) for part in record.slices)
        states = [self._states[place] for place in self._places(record) if place in self._states]
        notes = [*_stopped(states), *self._no_events(states), *(state.note for state in states)]
        return models.SlotTime(
            guaranteed=sum(card.guaranteed for card in cards),
            limit=sum(card.limit for card in cards),
            ceiling=sum(card.ceiling for card in cards),
            used=sum(card.used for card in cards),
            throttled=max((card.throttled for card in cards), default=0),
            cards=cards,
            note=" ".join(dict.fromkeys(note for note in notes if note)),
        )

    def waited(self, record: SlotRecord) -> dict[str, float]:
        """Return for how many seconds the slot's launches waited on each card, since this agent started."""
        states = {part.card: self._states.get(Place(record.slot, part.card)) for part in record.slices}
        return {card: 0.0 if state is None else state.meter.waited for card, state in states.items()}

    def _no_events(self, states: Iterable[_State]) -> Iterable[str]:
        now = self._clock()
        if any(0 <= now - state.blind_ns / 1e9 <= BLIND_SECONDS for state in states if state.blind_ns):
            yield NO_EVENTS

    @staticmethod
    def _places(record: SlotRecord) -> list[Place]:
        return [Place(record.slot, part.card) for part in record.slices]

    def _card_time(self, record: SlotRecord, part: SliceRecord) -> models.CardTime:
        words = limits.compute(record, part, self._directories.compute_ceiling, None)
        state = self._states.get(Place(record.slot, part.card), _State())
        rate = self._directories.rates(record.slot).get(part.card, words["rate_ppm"])
        guarantee = words["guarantee_ppm"]
        share = guarantee if state.share is None else state.share
        if not limits.is_elastic(record, part):
            share = guarantee  # also when the cores have changed since the last step
        return models.CardTime(
            uuid=part.card,
            guaranteed=permille(guarantee),
            limit=permille(max(share, guarantee)),
            ceiling=permille(words["ceiling_ppm"]),
            rate=permille(rate),
            used=permille(self._used(state, part.card, rate)),
            throttled=permille(state.meter.throttled),
        )

    def _used(self, state: _State, card: str, rate: int) -> int:
        """Return the use in ppm, from whichever source is nearer to the truth.

        Counters are exact while a slot is alone and nothing says otherwise, and count others' kernels while
        it is not. Of a hard slot with a whole card the library does not count at all.
        """
        truth = self._truths.get(card)
        driver = None if truth is None else truth.of(state.pids, self._clock())
        by_driver = state.shared or state.alone != 1.0 or rate > elastic.MEASURED
        if driver is not None and by_driver:
            return min(driver, elastic.WHOLE)
        return round(state.meter.used / state.stretch)


def _stopped(states: Iterable[_State]) -> Iterable[str]:
    """Say which processes do not run because somebody stopped them, not because of a limit."""
    for pid in sorted({pid for state in states for pid in state.pids}):
        found = stat(pid)
        if found is not None and found.state in STOPPED:
            yield f"Process {pid} ({found.name}) is stopped by a signal; `kill -CONT {pid}` lets it go on."


def _counters(processes: Iterable[ProcessCounters], card: int) -> dict[int, Counters]:
    return {process.owner: process.cards[card] for process in processes}


def _load(state: _State, share: int, cautious: bool) -> turns.Load:
    return turns.Load(share / elastic.WHOLE, state.meter.wish / elastic.WHOLE, state.meter.working, cautious)


def _base(state: _State, most: int) -> float:
    """Return the rate that goes with the share and its company, before it is trimmed."""
    return min(most, (state.share or 0) * state.stretch)


def _within(trim: float, state: _State, most: int) -> float:
    """Return a correction that leaves the rate within its bounds."""
    base = _base(state, most)
    return elastic.bounded(state.share or 0, base * trim, most) / base if base else 1.0


def _trim(state: _State) -> float:
    """Return the correction in force."""
    return state.trim if state.shared else state.alone


def _trim_alone(state: _State, truth: CardTruth, now: float, elapsed: float, most: int) -> None:
    """Correct a slot that is alone, by all figures since the last correction: pauses are part of the time."""
    wants_more = state.meter.held_back_throughout
    if truth.blind(now) or truth.of(state.pids, now) is None:
        state.alone = elastic.faded(state.alone, elapsed)
    elif state.alone > 1 and not wants_more:
        state.alone = elastic.faded(state.alone, elapsed / SLOWLY)
    elif truth.fresh:
        found = truth.between(state.pids, max(state.changed, state.corrected) + truth.covers)
        if found is None or found.seconds < ALONE_SECONDS:
            return
        doubt = elastic.ALONE_DOUBT * found.error
        bounds = max(0, found.least - doubt), found.most + doubt
        trim = elastic.trimmed_alone(state.alone, state.share or 0, *bounds, wants_more)
        if trim != state.alone:
            state.alone, state.corrected = _within(trim, state, most), now


def permille(ppm: int) -> int:
    """Return ppm as the API tells them: tenths of a percent, rounded."""
    return (ppm + 500) // 1000
