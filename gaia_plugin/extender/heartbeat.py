"""Whether a node's agent is alive, by its heartbeat and without trusting anybody's clock. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

STALE_SECONDS: Final = 100.0
"""Three heartbeats missed, and some."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat as it was seen: its text, and the monotonic second since which it has been the same."""

    text: str
    since: float

    def stale(self, now: float, limit: float = STALE_SECONDS) -> bool:
        """Tell whether it has been the same for so long that nobody writes it any more."""
        return now - self.since > limit


def seen(before: Beat | None, text: str, now: float, wall: datetime) -> Beat:
    """Take in a heartbeat.

    What counts is how long ago it *changed*, by our own monotonic clock: a node whose clock is wrong
    beats as well as another. Only of the first sight there is nothing to compare with, so its age is what
    the two clocks say; a node whose clock is behind is used again at its next heartbeat.
    """
    if before is not None:
        return before if before.text == text else Beat(text, now)
    return Beat(text, now - _age(text, wall))


def _age(text: str, wall: datetime) -> float:
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return float("inf")
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (wall - then).total_seconds())
