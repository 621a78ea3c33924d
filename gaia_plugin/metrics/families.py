"""Every metric, once: its name, kind, labels and what it says. `docs/reference/metrics.md` lists the same.

Names follow Prometheus: base units (bytes, seconds, ratios of one), ``_total`` for what only rises. A ratio
of 1 is one card's whole time, which is 100 cores.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["gauge", "counter", "histogram"]
About = Literal["agent", "card", "slot", "part"]
"""`slot`: of a slot in all; `part`: of what a slot has on one card."""


class Family(NamedTuple):
    """One metric. `labels` come after those that say what it is about, see `labels_of`."""

    name: str
    kind: Kind
    about: About
    meaning: str
    labels: tuple[str, ...] = ()


NODE: Final = ("node",)
"""Of everything on a node of a cluster."""
POD_SLOT: Final = ("namespace", "pod", "container", "uid")
"""Of a slot on a node; `uid` is the pod's, because a pod can have a predecessor that still drains."""
LOCAL_SLOT: Final = ("owner", "slot")
"""Of a slot on a single machine."""
CARD: Final = ("card",)
"""The card's UUID."""

SLOT_STATES: Final = ("making", "applied", "draining", "releasing")

WRONGS: Final = ("no_library", "no_slice", "host", "over_slot", "others_page")
"""What can be wrong with a process, in the watchdog's words."""


def labels_of(family: Family, *, on_node: bool) -> tuple[str, ...]:
    """Return the names of all labels of a metric, on a node of a cluster or on a single machine."""
    slot = POD_SLOT if on_node else LOCAL_SLOT
    about = {"agent": (), "card": CARD, "slot": slot, "part": (*slot, *CARD)}[family.about]
    return (*(NODE if on_node else ()), *about, *family.labels)


def _part(name: str, meaning: str, kind: Kind = "gauge") -> Family:
    return Family(f"gaia_slot_{name}", kind, "part", meaning)


def _card(name: str, meaning: str, *labels: str) -> Family:
    return Family(f"gaia_card_{name}", "gauge", "card", meaning, labels)


MEMORY_REQUESTED: Final = _part("memory_requested_bytes", "Device memory that the slot was made with.")
MEMORY_GRANTED: Final = _part("memory_granted_bytes", "Device memory that is in force as the slot's limit.")
MEMORY_HELD: Final = _part(
    "memory_held_bytes",
    "Device memory that is booked for the slot: more than granted while it drains or grows.",
)
MEMORY_USED: Final = _part(
    "memory_used_bytes", "Device memory that the slot uses, as it is charged for; 0 while it is idle."
)
COMPUTE_REQUESTED: Final = _part(
    "compute_requested_ratio", "Part of the card's time that the slot was made with."
)
COMPUTE_GRANTED: Final = _part(
    "compute_granted_ratio", "Part of the card's time that is in force for the slot."
)
COMPUTE_HELD: Final = _part("compute_held_ratio", "Part of the card's time that is booked for the slot.")
COMPUTE_GUARANTEE: Final = _part(
    "compute_guarantee_ratio", "Part of the card's time that the slot is never denied."
)
COMPUTE_LIMIT: Final = _part(
    "compute_limit_ratio",
    "Part of the card's time that the slot may use now: more than guaranteed where an elastic slot was given "
    "idle time.",
)
COMPUTE_USED: Final = _part(
    "compute_used_ratio", "Part of the card's time that the slot used in the last second."
)
THROTTLED: Final = _part(
    "throttled_seconds_total",
    "Time for which launches of the slot waited for its share of the card, since the agent started.",
    "counter",
)
SLOT_STATE: Final = Family(
    "gaia_slot_state", "gauge", "slot",
    "1 for the state that the slot is in, 0 for the others: making, applied, draining or releasing.",
    ("state",),
)  # fmt: skip

CARD_INFO: Final = _card("info", "Always 1; says the card's model and index.", "model", "index")
CARD_MEMORY: Final = _card("memory_capacity_bytes", "Device memory of the card that slots can have.")
CARD_MEMORY_FREE: Final = _card(
    "memory_free_bytes", "Device memory of the card that counts for nobody; 0 while the card is unhealthy."
)
CARD_MEMORY_USED: Final = _card(
    "memory_used_bytes",
    "Device memory in use on the card by whomever, as its driver tells; absent while the driver does not.",
)
CARD_MEMORY_OVER: Final = _card(
    "memory_overbooked_bytes", "Device memory by which what is held on the card exceeds what it has."
)
CARD_COMPUTE: Final = _card("compute_capacity_ratio", "Card time that slots can have: 1 is all of it.")
CARD_COMPUTE_FREE: Final = _card(
    "compute_free_ratio", "Card time that counts for nobody; 0 while the card is unhealthy."
)
CARD_HEALTHY: Final = _card("healthy", "1 while the card is in use for slots, 0 while it is not.")
CARD_MEMORY_FOREIGN: Final = _card(
    "memory_foreign_bytes", "Device memory of the card that is in use by no slot, and counts as taken."
)
UNMANAGED: Final = Family(
    "gaia_unmanaged_processes", "gauge", "card",
    "Processes that hold memory of the card past Gaia's library, or beside any slot, by what is wrong.",
    ("kind",),
)  # fmt: skip
STOPPED: Final = Family(
    "gaia_stopped_containers_total", "counter", "agent",
    "Containers that were stopped because of what they did to others, by what was wrong.",
    ("kind",),
)  # fmt: skip
LIBRARIES: Final = Family(
    "gaia_library_processes", "gauge", "agent",
    "Living processes in usage pages, by the version of Gaia's library that they loaded.",
    ("version",),
)  # fmt: skip

BUILD_INFO: Final = Family(
    "gaia_agent_build_info", "gauge", "agent", "Always 1; says the agent's version.", ("version",)
)
RESIZE_SECONDS: Final = Family(
    "gaia_resize_duration_seconds", "histogram", "agent",
    "Time from a request to resize until the slot's page has the new size; of those that were done.",
)  # fmt: skip
RESIZES: Final = Family(
    "gaia_resizes_total", "counter", "agent", "Requests to resize a slot, by how they ended.", ("outcome",)
)
REFUSALS: Final = Family(
    "gaia_refusals_total", "counter", "agent",
    "Requests that were refused, on all sockets and at the start of containers, by the API's code.",
    ("code",),
)  # fmt: skip
ALLOCATIONS: Final = Family(
    "gaia_allocations_total", "counter", "agent", "Calls of Allocate by the kubelet that were answered."
)
PRESTART_SECONDS: Final = Family(
    "gaia_prestart_duration_seconds", "histogram", "agent",
    "Time that a call of PreStartContainer by the kubelet took, also those that were refused.",
)  # fmt: skip
PRESTARTS: Final = Family(
    "gaia_prestarts_total", "counter", "agent",
    "Calls of PreStartContainer by the kubelet, by how they ended.",
    ("outcome",),
)  # fmt: skip
WRITES: Final = Family(
    "gaia_apiserver_writes_total", "counter", "agent",
    "Writes to the API server, by what was written and how it ended.",
    ("what", "outcome"),
)  # fmt: skip
HEARTBEAT: Final = Family(
    "gaia_last_heartbeat_timestamp_seconds", "gauge", "agent",
    "When the API server last took this node's status, in seconds since 1970; absent until it has.",
)  # fmt: skip

FAMILIES: Final = tuple(value for value in list(globals().values()) if isinstance(value, Family))
"""All of them, in the order in which they are told."""
