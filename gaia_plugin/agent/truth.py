"""What the driver says of one card's use by process, and when it is not to be relied on. Pure.

Drivers say nothing of an idle process, come late, and keep no such figures on a card cut by MIG. None
of this may stop anything: whoever asks gets the last figure while it is young, else none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt
from typing import Final, NamedTuple

from gaia_plugin.agent.gauge import Answer

STEP: Final = 0.15
"""Seconds between two steps."""
SHORTEST: Final = 1 / 6
"""Seconds of NVML's shortest window."""
YOUNG: Final = 1.0
"""Seconds for which a figure holds."""
PATIENCE: Final = 3.0
"""Seconds of silence about a card at work after which its driver counts as blind."""

KEPT: Final = 5.0
"""Seconds for which samples are kept, to be looked at together."""

NO_FIGURES: Final = (
    "The driver tells no use by process on this card, so compute shares are held by the programs' own "
    "counters alone; beside other busy slots a hard one gets less than its share, and hardly ever more."
)
SILENT: Final = (
    "The driver has not told who uses this card for some seconds, so compute shares are held by the "
    "programs' own counters alone; beside other busy slots a hard one gets less than its share, and hardly "
    "ever more."
)


class Between(NamedTuple):
    """A use in ppm that is known within bounds: how far chance moves it (the standard error, ppm too; large
    where long kernels and pauses take turns), and the seconds that it was taken over."""

    least: int
    most: int
    error: int
    seconds: float


class _Sample(NamedTuple):
    """One figure: when it came, when the driver took it (microseconds of its clock), ppm of the card."""

    came: float
    at: int
    pid: int
    ppm: int


@dataclass
class CardTruth:
    """The newest figures of one card, in ppm by pid."""

    shares: dict[int, int] = field(default_factory=dict)
    fresh: bool = False
    """Whether the last step brought new figures; `elapsed` is the time since those before."""
    elapsed: float = 0.0
    _at: float = float("-inf")
    _quiet_since: float | None = None
    _refused: bool = False
    _kept: deque[_Sample] = field(default_factory=deque)

    def step(self, now: float, answer: Answer | None, working: bool) -> None:
        """Take in what came since the last step; `working` is whether slots say that they work."""
        self.fresh = False
        if not working:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now
        if answer is None:
            return
        self._refused = bool(answer.refused)
        if not answer.samples:
            return
        by_pid: dict[int, list[int]] = {}
        for sample in answer.samples:
            by_pid.setdefault(sample.pid, []).append(sample.permille)
        # who is not in a set of new samples was idle
        self.shares = {pid: 1000 * sum(each) // len(each) for pid, each in by_pid.items()}
        self.fresh, self.elapsed = True, now - self._at
        self._at = now
        self._quiet_since = now if working else None
        self._kept.extend(_Sample(now, s.at, s.pid, 1000 * s.permille) for s in answer.samples)
        while self._kept and self._kept[0].came < now - KEPT:
            self._kept.popleft()

    @property
    def covers(self) -> float:
        """Return how many seconds back the newest figures may reach.

        Their own window, a step until they are asked for and one until the answer is taken.
        """
        return 2 * STEP + max(SHORTEST, min(self.elapsed, YOUNG))

    def of(self, pids: Iterable[int], now: float) -> int | None:
        """Return what these processes use in all, in ppm; None where nothing young is known."""
        if now - self._at > YOUNG:
            return None
        return sum(self.shares.get(pid, 0) for pid in pids)

    def between(self, pids: Iterable[int], since: float) -> Between | None:
        """Return what these processes used in all, by the samples that came after `since`.

        A driver has no sample of a time in which a process was idle, and does not say how long the time
        of a sample was. It was at least the shortest window, which gives the least; and as if they had
        never been idle is the most. None without two samples of different times.
        """
        known = set(pids)
        kept = [sample for sample in self._kept if sample.came > since and sample.pid in known]
        if not kept:
            return None
        first, last = min(sample.at for sample in kept), max(sample.at for sample in kept)
        if last <= first:
            return None
        # what the first one tells lies before the time between them
        later = [sample for sample in kept if sample.at > first]
        seconds = (last - first) / 1e6
        per_pid: dict[int, list[int]] = {}
        per_time: dict[int, int] = {}
        for sample in later:
            per_pid.setdefault(sample.pid, []).append(sample.ppm)
            per_time[sample.at] = per_time.get(sample.at, 0) + sample.ppm
        most = sum(sum(each) / len(each) for each in per_pid.values())
        # windows without a sample are windows of nothing
        windows = max(seconds / SHORTEST, *(len(each) for each in per_pid.values()))
        mean = sum(per_time.values()) / windows
        spread = max(0.0, sum(ppm * ppm for ppm in per_time.values()) / windows - mean * mean)
        error = sqrt(spread / windows)
        return Between(round(min(mean, most)), round(most), round(error), seconds)

    def others(self, pids: Iterable[int], now: float) -> int:
        """Return what all but these processes use, as far as is known."""
        known = set(pids)
        return 0 if now - self._at > YOUNG else sum(p for pid, p in self.shares.items() if pid not in known)

    def blind(self, now: float) -> str:
        """Return why the driver's figures cannot be relied on; empty when they can."""
        if self._refused:
            return NO_FIGURES
        late = self._quiet_since is not None and now - self._quiet_since > PATIENCE
        return SILENT if late else ""
