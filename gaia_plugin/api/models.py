"""The words of the dynamic-allocation API, on both sockets and on both sides.

Amounts of memory are bytes (integers), cores are percent of one card. `docs/reference/openapi.json`
describes the same; a test keeps the two equal.
"""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["applied", "draining", "releasing"]
Compute = Literal["hard", "elastic"]


class Amounts(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over all cards of a slot: bytes of memory and cores."""

    memory: int
    cores: int


class SlotCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot has on one card. Bytes and cores."""

    uuid: str
    index: int
    name: str
    requested: Amounts
    granted: Amounts
    held: Amounts
    used: int
    free_on_card: Amounts


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process that holds device memory in a slot; `memory` is bytes over all its cards."""

    pid: int
    name: str
    memory: int


class CardTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot has of one card's time and what it uses, in permille of the card.

    `guaranteed` is never denied; `limit` is what it may use now, more than guaranteed where an elastic
    slot has been given idle time; `ceiling` is how far that can go. `rate` is the rate that the library
    holds it to so that it gets its limit among other tenants. `used` and `throttled` (the time that its
    launches waited) are of the last second.
    """

    uuid: str
    guaranteed: int
    limit: int
    ceiling: int
    rate: int
    used: int
    throttled: int


class SlotTime(msgspec.Struct, frozen=True, kw_only=True):
    """A slot's compute share in permille of one card's time: sums over its cards.

    `throttled` is that of the card on which launches waited most. `note` says why the figures may be
    off; it is empty when they are not.
    """

    guaranteed: int
    limit: int
    ceiling: int
    used: int
    throttled: int
    cards: tuple[CardTime, ...]
    note: str = ""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot as it stands.

    `requested` is what it was made with, `granted` what is in force, `held` what is booked
    (more than granted while draining), `used` measured bytes, `maximum` how far its owner may go,
    `could_reach` the totals that a resize would be granted right now. `time` is its compute share and
    what it uses of it; null from an agent that does not measure. `label` is the slot's pod as
    namespace/name, empty on a single machine. `note` is what people should know of it after a fault.
    """

    slot: str
    owner: str
    name: str
    generation: int
    state: State
    compute: Compute
    requested: Amounts
    granted: Amounts
    held: Amounts
    used: int
    maximum: Amounts
    could_reach: Amounts
    cards: tuple[SlotCard, ...]
    processes: tuple[Process, ...]
    message: str
    time: SlotTime | None = None
    label: str = ""
    note: str = ""


class Resize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PATCH: totals, or one card's amounts by UUID. Absent means "as it is".

    Memory is bytes or text with a unit (``"8GiB"``); see `gaia_plugin.units`.
    """

    memory: object = None
    cores: object = None
    cards: dict[str, dict[str, object]] | None = None


class Resized(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a resize that was taken: `applied`, or `draining` until memory is freed."""

    state: State
    message: str
    slot: Slot


class NewSlot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/slots (operator socket). Memory and cores as in `Resize`.

    `process` is the host pid whose end releases the slot; without it the slot waits a minute for
    PUT /v1/slots/{slot}/process and is then released.
    """

    owner: str
    name: str = ""
    memory: object = None
    cores: object = None
    count: int = 1
    max_memory: object = None
    max_cores: object = None
    compute: Compute = "hard"
    models: tuple[str, ...] = ()
    process: int | None = None


class MadeSlot(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to POST /v1/slots: the slot, its directory, and the environment to start with."""

    slot: Slot
    directory: str
    environment: dict[str, str]


class Owner(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of PUT /v1/slots/{slot}/process: the host pid that the slot now belongs to."""

    process: int


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a new slot of some size could start now, and if not, why and what would."""

    fits: bool
    reason: str = ""
    best: Amounts | None = None


class CardView(msgspec.Struct, frozen=True, kw_only=True):
    """A card of this node. Bytes and cores; `free` is what a new slot could get.

    `trouble` says why a card is not healthy.
    """

    uuid: str
    index: int
    name: str
    healthy: bool
    total: Amounts
    free: Amounts
    used: int
    slots: tuple[str, ...]
    trouble: str = ""


HolderKind = Literal["slot", "reservation", "unmanaged"]


class CardHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who counts on a card, and with how much: a slot with what it holds, else a reservation.

    `name` is namespace/pod:container, or the slot's name where it has no pod. `used` is the slot's
    measured bytes on this card; 0 for a reservation. `unmanaged` is memory that programs without a slice
    use.
    """

    name: str
    kind: HolderKind
    amounts: Amounts
    used: int


class CardReason(msgspec.Struct, frozen=True, kw_only=True):
    """One card, as it is for a container. Bytes and cores.

    `free` is what nobody counts on but the container itself, `lacks` what is missing there of what it
    asks for, or of what it may still grow by; nothing where it fits. `trouble` says why the card cannot
    serve it at all.
    """

    uuid: str
    index: int
    name: str
    total: Amounts
    free: Amounts
    lacks: Amounts
    trouble: str
    holders: tuple[CardHolder, ...]


class LastRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent last refused a container with.

    `ago` and `since` are seconds: since it was said last, and since it was refused first.
    """

    code: str
    sentence: str
    ago: float
    since: float


WaitState = Literal["pending", "waiting", "invalid", "ended"]


class ContainerReason(msgspec.Struct, frozen=True, kw_only=True):
    """What a container asks for, what it has, and why it has no more.

    `state` is its slot's, or without one: `pending` (the kubelet has not asked for it yet), `waiting`
    (refused so far), `invalid` (what it asks for cannot be had anywhere), `ended`; `making` is a slot that
    is booked and not in force yet. `asked` and `maximum` are totals over its `cards_wanted` cards; null
    where they cannot be read. `best` is what would be granted now instead: of a new slot the request, of a
    slot the totals that it could reach. `cards` are those that matter to it, with what each lacks.
    """

    container: str
    state: State | WaitState | Literal["making"]
    sentence: str
    asked: Amounts | None
    cards_wanted: int
    maximum: Amounts | None
    best: Amounts | None
    slot: Slot | None
    cards: tuple[CardReason, ...]
    refused: LastRefusal | None


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node, with each of its containers that asks for a slice.

    `phase` is Kubernetes' word for the pod; ``Gone`` where the pod is gone and a slot is left of it;
    ``Unknown`` where it has a slot and the API server has not shown yet what runs here.
    """

    pod: str
    uid: str
    node: str
    phase: str
    sentence: str
    containers: tuple[ContainerReason, ...]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers on the operator socket; `driver` is the directory of the driver's libraries."""

    pid: int
    version: str
    driver: str
    state: str
    slots: int


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """RFC 9457 problem details; `code` is stable and `best_offer` would have been granted."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    best_offer: Amounts | None = None
    current: Slot | None = None
