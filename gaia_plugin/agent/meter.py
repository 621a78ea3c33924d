"""How much of a card's time a slot used of late, and how much it would use. Pure; time is handed in.

Two sources: the counters of the slot's own processes, which are exact while it is alone but count what
other tenants ran between two events, and are a tenant's claim; and the driver's use by process, which
is the truth but comes late, in whole percents, and on some cards not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gaia_plugin.agent.elastic import WHOLE
from gaia_plugin.slots.counters import Counters

WINDOW: Final = 1.0
"""Seconds that the figures are taken over, and after which a slot without work counts as idle."""
BUSY_PART: Final = 0.9
"""A slot that uses this part of its rate would use more."""
LATELY: Final = 0.45
"""Seconds for which a slot counts as having work on the card after it had."""
HELD_BACK: Final = 20_000
"""As would one whose launches waited for this part of the time, in ppm."""
_MOST: Final = 16 * WHOLE


@dataclass(frozen=True, slots=True)
class Sample:
    """One step: its end and length in seconds; busy and waiting in ppm; the rate that was in force; how
    many processes did anything."""

    at: float
    seconds: float
    busy: int
    throttled: int
    active: bool
    rate: int
    processes: int

    @property
    def wants_more(self) -> bool:
        """Tell whether it used what it had."""
        return self.active and (self.throttled >= HELD_BACK or self.busy >= BUSY_PART * self.rate)


@dataclass
class Meter:
    """The last second of one slot on one card."""

    samples: deque[Sample] = field(default_factory=deque)
    waited: float = 0.0
    """Seconds that launches waited, in all; what one step claims is bounded, for it is a tenant's claim."""
    _before: dict[int, Counters] | None = None
    _at: float = 0.0
    _back_until: float = 0.0

    def step(self, now: float, counters: Mapping[int, Counters], rate: int, driver: int | None) -> None:
        """Take in the counters by owner word, the rate in force, and the driver's figure (ppm) if any."""
        before, seconds = self._before, now - self._at
        self._before, self._at = dict(counters), now
        if before is None or seconds <= 0:
            return
        busy = throttled = launches = working = 0
        for owner, after in counters.items():
            # a process is new with counters of nought; a word that fell is noise or another process
            first = before.get(owner, Counters())
            parts = (
                max(0, after.busy_ns - first.busy_ns),
                max(0, after.throttled_ns - first.throttled_ns),
                max(0, after.launches - first.launches),
            )
            busy, throttled, launches = busy + parts[0], throttled + parts[1], launches + parts[2]
            working += any(parts)
        self.waited += _ppm(throttled, seconds) * seconds / 1e6
        active = bool(busy or throttled or launches or driver)
        if active and not self.active:
            self._back_until = now + WINDOW
        self.samples.append(
            Sample(now, seconds, _ppm(busy, seconds), _ppm(throttled, seconds), active, rate, working)
        )
        while self.samples and self.samples[0].at <= now - WINDOW:
            self.samples.popleft()

    def rest(self, now: float, counters: Mapping[int, Counters]) -> None:
        """Take in, at once, all steps until `now` in which the counters stood still: nothing was done."""
        self.samples.clear()
        self._before, self._at = dict(counters), now

    @property
    def active(self) -> bool:
        """Tell whether it did anything in the last second."""
        return any(sample.active for sample in self.samples)

    def demand(self, guarantee: int, stretch: float = 1.0) -> int:
        """Return what it would use, in ppm: 0 when idle, the whole card when it is held back.

        One that has just come back has its whole guarantee kept for it, because what it did at first
        says little; one that uses less than it may has a quarter more and two percent kept. Its
        events take `stretch` times as long as what the card did for it.
        """
        if not self.active:
            return 0
        if any(sample.wants_more for sample in self.samples):
            return WHOLE
        used = round(max(sample.busy for sample in self.samples) / stretch)
        kept = min(WHOLE, used * 5 // 4 + HELD_BACK)
        return max(kept, guarantee) if self._at < self._back_until else kept

    @property
    def working(self) -> int:
        """Return how many of its processes did anything of late."""
        return max((sample.processes for sample in self._lately()), default=0)

    @property
    def wish(self) -> int:
        """Return the part of the time that it would have work on the card, in ppm by its own events.

        Everything when it used up what it had, also for one that has just come back: see `demand`.
        """
        lately = self._lately()
        if not any(sample.active for sample in lately):
            return 0
        if self._at < self._back_until or any(sample.wants_more for sample in lately):
            return WHOLE
        return min(WHOLE, max(sample.busy for sample in lately))

    def bursts(self, share: int) -> bool:
        """Tell whether it uses up, unhindered, what it saved while it was idle."""
        back = self._at < self._back_until and not self.held_back
        return back and bool(self.samples) and self.samples[-1].busy > share

    def _lately(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.at > self._at - LATELY]

    @property
    def held_back(self) -> bool:
        """Tell whether its launches waited in the last step."""
        return bool(self.samples) and self.samples[-1].throttled >= HELD_BACK

    @property
    def held_back_throughout(self) -> bool:
        """Tell whether its launches waited in each step of the last second."""
        return bool(self.samples) and all(sample.throttled >= HELD_BACK for sample in self.samples)

    @property
    def used(self) -> int:
        """Return what it used by its own counters, in ppm of the last second."""
        return self._mean(sample.busy * sample.seconds for sample in self.samples)

    @property
    def throttled(self) -> int:
        """Return the part of the last second that its launches waited, in ppm."""
        return self._mean(sample.throttled * sample.seconds for sample in self.samples)

    def _mean(self, parts: Iterable[float]) -> int:
        seconds = sum(sample.seconds for sample in self.samples)
        return min(WHOLE, round(sum(parts) / seconds)) if seconds else 0


def _ppm(ns: int, seconds: float) -> int:
    # long kernels are paid at their end, so one step may have more than the whole
    return min(_MOST, int(ns / (seconds * 1_000)))
