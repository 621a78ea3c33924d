"""What the driver says of one card's use by process, and when it is not to be relied on. Pure.

Drivers say nothing of an idle process, come late, and keep no such figures on a card cut by MIG. None
of this may stop anything: whoever asks gets the last figure while it is young, else none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gaia_plugin.agent.gauge import Answer

STEP: Final = 0.15
"""Seconds between two steps."""
SHORTEST: Final = 1 / 6
"""Seconds of NVML's shortest window."""
YOUNG: Final = 1.0
"""Seconds for which a figure holds."""
PATIENCE: Final = 3.0
"""Seconds of silence about a card at work after which its driver counts as blind."""

NO_FIGURES: Final = (
    "The driver tells no use by process on this card, so compute shares are held by the programs' own "
    "counters alone; among several busy slots they may be some percent off."
)
SILENT: Final = (
    "The driver has not told who uses this card for some seconds, so compute shares are held by the "
    "programs' own counters alone; among several busy slots they may be some percent off."
)


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
