"""The `GPUNode`: the one object that agent and extender both write, as the API server has it.

Cluster-scoped, one per node and named after it. `spec.reservations` is the extender's, `status` (a
subresource) the agent's; both are written over the resourceVersion that was decided upon, and every
write of either voids what the other decided upon the version before. Memory is in units of 256 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from gaia_plugin.counted import Holder, counted
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.pods import DOMAIN
from gaia_plugin.shares import NOTHING, Share

VERSION: Final = "v1alpha1"
KIND: Final = "GPUNode"
PLURAL: Final = "gpunodes"


class Amounts(msgspec.Struct, frozen=True, rename="camel"):
    """A share of a card, or of several: `memory` in units of 256 MiB, `cores` in percent of one card."""

    memory: int = 0
    cores: int = 0

    @property
    def share(self) -> Share:
        """Return it as the ledger counts."""
        return Share(self.memory, self.cores)

    @classmethod
    def of(cls, share: Share) -> Amounts:
        """Return what the ledger counts as the object tells it."""
        return cls(share.units, share.cores)


class Reservation(msgspec.Struct, frozen=True, rename="camel"):
    """What the extender has promised to one container on one card, until the node has its slot."""

    uid: str
    container: str
    card: str
    amounts: Amounts
    pod: str = ""
    """``namespace/name``, for people."""
    at: str = ""
    """When it was made, RFC 3339."""


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the extender says."""

    reservations: tuple[Reservation, ...] = ()


class Link(msgspec.Struct, frozen=True, rename="camel"):
    """What ties a card to another one; pairs that share nothing but the machine are left out."""

    card: str
    level: Literal["NUMA", "Switch", "NVLink"]
    links: int = 0
    """How many NVLinks."""


class CardStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A card. `free` is what neither slots nor reservations count on, never below zero."""

    uuid: str
    index: int
    model: str
    healthy: bool
    capacity: Amounts
    free: Amounts
    reason: str = ""
    """Why it is not healthy."""
    used_mi_b: int | None = msgspec.field(default=None, name="usedMiB")
    """Device memory in use by whomever, as the driver tells; at most half a minute old."""
    links: tuple[Link, ...] = ()


class SliceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a slot has on one card; see the ledger for what the three amounts mean."""

    card: str
    requested: Amounts
    granted: Amounts
    held: Amounts
    used_mi_b: int | None = msgspec.field(default=None, name="usedMiB")


class DesiredStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of the last ``vgpu-desired`` annotation of a slot's pod."""

    text: str
    """What the annotation said for this container."""
    state: Literal["Applied", "Deferred", "Infeasible"]
    message: str = ""


class SlotStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A slot. `Making` is booked and not in force yet, `Releasing` goes when nothing is in use."""

    uid: str
    container: str
    state: Literal["Making", "Applied", "Draining", "Releasing"]
    slices: tuple[SliceStatus, ...]
    maximum: Amounts
    compute: Literal["hard", "elastic"]
    generation: int
    pod: str = ""
    message: str = ""
    desired: DesiredStatus | None = None

    @property
    def holder(self) -> Holder:
        """Return whose slot it is."""
        return Holder(self.uid, self.container)


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition as all Kubernetes objects have them."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    last_transition_time: str = ""


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """Words for the columns of ``kubectl get gpunodes``; programs read `cards`."""

    cards: str = ""
    memory: str = ""
    cores: str = ""
    largest: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the agent says of its node. `heartbeat` is RFC 3339, written at least every half minute."""

    ready: bool = False
    heartbeat: str = ""
    agent_version: str = ""
    cards: tuple[CardStatus, ...] = ()
    slots: tuple[SlotStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()
    summary: Summary = Summary()


class GpuNode(msgspec.Struct, frozen=True, rename="camel"):
    """One node's object, as it is read."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def version(self) -> str:
        """Return its resourceVersion."""
        return self.metadata.version


def api_version(domain: str = DOMAIN) -> str:
    """Return group and version."""
    return f"{domain}/{VERSION}"


def path(name: str = "", domain: str = DOMAIN, *, subresource: str = "") -> str:
    """Return the path of a node's object, of its subresource, or of the collection."""
    parts = ("/apis", api_version(domain), PLURAL, *(part for part in (name, subresource) if part))
    return "/".join(parts)


def reserved(reservations: Iterable[Reservation]) -> dict[Holder, dict[str, Share]]:
    """Return what is reserved, by container and card; several of one container on one card add up."""
    found: dict[Holder, dict[str, Share]] = {}
    for each in reservations:
        parts = found.setdefault(Holder(each.uid, each.container), {})
        parts[each.card] = parts.get(each.card, NOTHING) + each.amounts.share
    return found


def held(slots: Iterable[SlotStatus]) -> dict[Holder, Mapping[str, Share]]:
    """Return what is held, by container and card."""
    return {slot.holder: {part.card: part.held.share for part in slot.slices} for slot in slots}


def free(node: GpuNode) -> dict[str, Share]:
    """Return what is free on each card; negative where more counts on it than it has."""
    taken = counted(held(node.status.slots), reserved(node.spec.reservations))
    return {card.uuid: card.capacity.share - taken.get(card.uuid, NOTHING) for card in node.status.cards}
