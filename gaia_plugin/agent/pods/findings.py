"""What the watchdog has found, as others read it: events, the node's condition, metrics, notes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from gaia_plugin.agent.pods.unmanaged import Kind, Sight, Subject
from gaia_plugin.kube.gpunode import Condition

CONDITION: Final = "UnmanagedProcesses"
"""Type of the condition of the `GPUNode`."""

AGAIN_SECONDS: Final = 600.0
"""Seconds after which what is still so is said on its pod again."""

CHANGED_SECONDS: Final = 30.0
"""Seconds for which a change of what was said is not worth another event: programs start and end."""

_MOST: Final = 3
"""Findings that a condition tells of."""
_LONGEST: Final = 2000
"""Characters of a condition's message."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was seen in two rounds, one after the other.

    `pod` is ``namespace/name``, empty where it is not known or there is none; `since` is seconds since the
    epoch.
    """

    subject: Subject
    sight: Sight
    sentence: str
    pod: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the watchdog knows at a moment; a value that nobody changes.

    `foreign` is units of each card in use by nobody's slot. `libraries` counts living processes by the
    version of the library that they registered with. `stopped` counts containers that were stopped since
    the agent's start, by kind of reason.
    """

    found: tuple[Finding, ...] = ()
    foreign: Mapping[str, int] = field(default_factory=dict)
    libraries: Mapping[str, int] = field(default_factory=dict)
    stopped: Mapping[Kind, int] = field(default_factory=dict)

    def processes(self) -> dict[tuple[str, Kind], int]:
        """Return how many processes there are, by card and kind."""
        counts: dict[tuple[str, Kind], int] = {}
        for each in self.found:
            key = (each.subject.card, each.subject.kind)
            counts[key] = counts.get(key, 0) + len(each.sight.pids)
        return counts

    def of_slot(self, slot: str) -> str:
        """Return the sentences about a slot; empty when there are none."""
        return " ".join(each.sentence for each in self.found if each.subject.slot == slot and slot)

    def of_card(self, card: str) -> str:
        """Return the sentences about a card that belong to no slot; empty when there are none."""
        return " ".join(
            each.sentence for each in self.found if each.subject.card == card and not each.subject.slot
        )


@dataclass(frozen=True, slots=True)
class Said:
    """What was last said of a subject on its pod, and when (monotonic seconds)."""

    sight: Sight
    at: float


def worth_saying(before: Said | None, sight: Sight, now: float) -> bool:
    """Tell whether an event is due: at first, when it changed, and when it is so after ten minutes still."""
    if before is None or now - before.at >= AGAIN_SECONDS:
        return True
    more = set(sight.pids) - set(before.sight.pids)
    grown = sight.bytes is not None and sight.bytes >= 2 * (before.sight.bytes or 1)
    return bool(more or grown) and now - before.at >= CHANGED_SECONDS


def condition(findings: Sequence[Finding], before: Condition | None, now: float) -> Condition:
    """Return the node's condition; the time of its last change stays while its status does.

    Args:
        findings: those of now.
        before: the condition as it was; None: there was none.
        now: seconds since the epoch.
    """
    if findings:
        told = [f"{each.pod}: {each.sentence}" if each.pod else each.sentence for each in findings]
        more = len(told) - _MOST
        message = " ".join(told[:_MOST])[:_LONGEST] + (f" And {more} more." if more > 0 else "")
        found = Condition(CONDITION, "True", "Found", message)
    else:
        found = Condition(CONDITION, "False", "NoneFound", "Every process on the cards is in its slot.")
    same = before is not None and before.status == found.status and before.last_transition_time
    moment = same or datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Condition(found.type, found.status, found.reason, found.message, moment)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A subject that was seen once: in the next round it is a finding."""

    sight: Sight
    since: float
    rounds: int = 1

    def again(self, sight: Sight) -> Suspect:
        """Return what is known after it was seen once more."""
        return replace(self, sight=sight, rounds=self.rounds + 1)


def confirmed(
    before: Mapping[Subject, Suspect], seen: Mapping[Subject, Sight], blind: Collection[str], now: float
) -> dict[Subject, Suspect]:
    """Return what is suspected after one more round.

    A process may start or end between two of the questions of a round, so one round proves nothing.

    Args:
        before: what was suspected.
        seen: what this round saw.
        blind: cards of which this round saw nothing: what was suspected there stays.
        now: seconds since the epoch.
    """
    found = {subject: each for subject, each in before.items() if subject.card in blind}
    for subject, sight in seen.items():
        known = before.get(subject)
        found[subject] = Suspect(sight, now) if known is None else known.again(sight)
    return found
