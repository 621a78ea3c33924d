"""What containers were last refused with, for `gaia explain`. In memory: the kubelet asks again anyway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gaia_plugin.agent.pods.identity import Owner
from gaia_plugin.errors import Refusal


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal, when it was said first and last: monotonic seconds."""

    refusal: Refusal
    first: float
    last: float


class Refusals:
    """The last refusal of each container; on the event loop only."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[Owner, Refused] = {}

    def now(self) -> float:
        """Return the time that the refusals are noted with."""
        return self._clock()

    def note(self, owner: Owner, refusal: Refusal) -> None:
        """Note what a container was refused with."""
        now = self.now()
        before = self._of.get(owner)
        self._of[owner] = (
            Refused(refusal, now, now) if before is None else replace(before, refusal=refusal, last=now)
        )

    def of(self, owner: Owner) -> Refused | None:
        """Return what a container was refused with last, if it ever was."""
        return self._of.get(owner)

    def forget(self, alive: Callable[[str], bool]) -> None:
        """Forget those of pods that are gone."""
        self._of = {owner: refused for owner, refused in self._of.items() if alive(owner.uid)}
