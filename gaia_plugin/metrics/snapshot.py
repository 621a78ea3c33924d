"""How an agent stands at one moment, as values that nothing changes any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gaia_plugin.shares import NOTHING, Share

State = Literal["making", "applied", "draining", "releasing"]


@dataclass(frozen=True, slots=True)
class Part:
    """What a slot has on one card. `used` is bytes; `guarantee`, `limit` and `busy` are parts of its time."""

    card: str
    requested: Share
    granted: Share
    held: Share
    used: int = 0
    guarantee: float = 0.0
    limit: float = 0.0
    busy: float = 0.0
    throttled: float = 0.0
    """Seconds, since the agent started."""


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """A slot: `slot` is its name and `owner` whose it is; on a node the UID of a pod.

    `container` and `label` (``namespace/pod``) are a node's; the label is empty as long as it is not known.
    """

    slot: str
    owner: str
    state: State
    parts: tuple[Part, ...]
    container: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class CardFigures:
    """A card. `used` is bytes by whomever; None: the driver does not say."""

    uuid: str
    index: int
    model: str
    healthy: bool
    capacity: Share
    free: Share
    over: Share = NOTHING
    used: int | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watchdog has found by now, by kind of what is wrong.

    `unmanaged` counts processes by card and kind, `foreign` is units of each card in use by nobody's slot,
    `stopped` counts containers, `libraries` processes by the version of the library that they loaded.
    """

    unmanaged: Mapping[tuple[str, str], int] = field(default_factory=dict)
    foreign: Mapping[str, int] = field(default_factory=dict)
    stopped: Mapping[str, int] = field(default_factory=dict)
    libraries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timings:
    """A histogram: how many fell into each bucket of `tally.BOUNDS`, the last of which has no bound."""

    counts: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Events:
    """What happened since the agent started, by the labels of each metric."""

    resizes: Mapping[str, int]
    resize_times: Timings
    refusals: Mapping[str, int]
    allocations: int
    prestarts: Mapping[str, int]
    prestart_times: Timings
    writes: Mapping[tuple[str, str], int]
    heartbeat: float | None
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An agent at one moment. `node` is the node's name, empty on a single machine.

    `watched` is None where nobody looks for processes that slip past the library.
    """

    node: str
    version: str
    slots: tuple[SlotFigures, ...]
    cards: tuple[CardFigures, ...]
    events: Events
    watched: Watched | None = None
