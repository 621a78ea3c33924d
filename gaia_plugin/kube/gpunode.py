"""The `GPUNode`: the one object that agent and extender both write, as the API server has it.

Cluster-scoped, one per node and named after it. `spec.reservations` is the extender's, `status` (a
subresource) the agent's; both are written over the resourceVersion that was decided upon, and every
write of either voids what the other decided upon the version before. Memory is in units of 256 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
import structlog
from msgspec import Meta

from gaia_plugin.counted import Holder, counted
from gaia_plugin.kube import tolerant
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.pods import DOMAIN
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import CORES_PER_CARD, LARGEST_MEMORY, MEMORY_UNIT

log = structlog.get_logger(__name__)

VERSION: Final = "v1alpha1"
KIND: Final = "GPUNode"
PLURAL: Final = "gpunodes"

MOST_CARDS: Final = 64
MOST_UNITS: Final = LARGEST_MEMORY // MEMORY_UNIT
MOST_RESERVATIONS: Final = 1024


def _by(*keys: str) -> dict[str, Any]:
    """Return what says of a list that these fields of an item are its key: none comes twice.

    Only for short lists of which others may write an item. The API server notes who owns each field of
    each item, which for 64 slots is more than the object itself and doubles the time of every write.
    """
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


# What the API server refuses to keep is said here and nowhere else (`crd`); the texts of a status are
# not bounded, because a status that is refused would keep the node from telling anything.
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Units = Annotated[int, Meta(ge=0, le=MOST_UNITS)]
Cores = Annotated[int, Meta(ge=0, le=CORES_PER_CARD * MOST_CARDS)]
MiB = Annotated[int, Meta(ge=0)]
Used = Annotated[MiB | None, Meta(description="Memory in use, in MiB, at most half a minute old.")]


def _is(text: str) -> Meta:
    """Return what `kubectl explain` says of a field."""
    return Meta(description=text)


_OF_ONE_CARD: Final = {
    "properties": {"memory": {"minimum": 1}, "cores": {"maximum": CORES_PER_CARD}},
}


class Amounts(msgspec.Struct, frozen=True, rename="camel"):
    """A share of a card, or of several: memory in units of 256 MiB, cores in percent of one card."""

    memory: Annotated[Units, _is("In units of 256 MiB: 16 are 4 GiB.")]
    cores: Annotated[Cores, _is("In percent of one card's time.")]

    @property
    def share(self) -> Share:
        """Return it as the ledger counts."""
        return Share(self.memory, self.cores)

    @classmethod
    def of(cls, share: Share) -> Amounts:
        """Return what the ledger counts as the object tells it."""
        return cls(share.units, share.cores)


class Reservation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the scheduler extender has promised to one container on one card, until the node has its slot.

    `pod` is ``namespace/name``, for people; `at` is when it was made or confirmed, RFC 3339.
    """

    uid: Annotated[Name, _is("UID of the pod that it is for.")]
    container: Annotated[Name, _is("The pod's container that it is for.")]
    card: Annotated[Name, _is("UUID of the card.")]
    amounts: Annotated[Amounts, Meta(extra_json_schema=_OF_ONE_CARD)]
    pod: Annotated[str, Meta(max_length=512)] = ""
    at: Annotated[str, Meta(max_length=64)] = ""


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the extender says."""

    reservations: Annotated[
        tuple[Reservation, ...],
        Meta(max_length=MOST_RESERVATIONS),
    ] = ()


class Link(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What ties a card to another one, with how many NVLinks.

    Pairs that share nothing but the machine are left out.
    """

    card: Name
    level: Literal["NUMA", "Switch", "NVLink"]
    links: Annotated[int, Meta(ge=0)] = 0


class CardStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A card. `free` is what neither slots nor reservations count on, never below zero.

    `reason` says why it is not healthy; `usedMiB` is device memory in use by whomever, as the driver
    tells, at most half a minute old.
    """

    uuid: Name
    index: Annotated[int, Meta(ge=0)]
    model: str
    healthy: bool
    capacity: Annotated[Amounts, _is("All that slots can have.")]
    free: Annotated[Amounts, _is("What neither slots nor reservations count on.")]
    reason: Annotated[str, _is("Why it is not healthy.")] = ""
    used_mi_b: Used = msgspec.field(default=None, name="usedMiB")
    links: tuple[Link, ...] = ()


class SliceStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a slot has on one card.

    Requested: what its pod asks for. Granted: its limit now. Held: what nobody else can get; more than
    granted while it grows, or while programs use more than the limit.
    """

    card: Annotated[Name, _is("UUID of the card.")]
    requested: Annotated[Amounts, _is("What the pod asks for.")]
    granted: Annotated[Amounts, _is("What is in force now.")]
    held: Annotated[Amounts, _is("What nobody else can get.")]
    used_mi_b: Used = msgspec.field(default=None, name="usedMiB")


class DesiredStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What became of the last ``vgpu-desired`` annotation of a slot's pod; `text` is what it said."""

    text: str
    state: Literal["Applied", "Deferred", "Infeasible"]
    message: str = ""


class SlotStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One container's place on the node.

    Making: booked, not in force yet. Draining: holds more than it is granted. Releasing: its container is
    gone, and the slot goes when nothing is in use.
    """

    uid: Annotated[Name, _is("UID of the pod.")]
    container: Annotated[Name, _is("The pod's container.")]
    state: Literal["Making", "Applied", "Draining", "Releasing"]
    slices: tuple[SliceStatus, ...]
    maximum: Annotated[Amounts, _is("How far it may grow, over all its cards.")]
    compute: Literal["hard", "elastic"]
    generation: Annotated[int, Meta(ge=0, description="Counts its changes.")]
    pod: Annotated[str, _is("namespace/name of the pod.")] = ""
    message: Annotated[str, _is("What there is to say of it.")] = ""
    desired: DesiredStatus | None = None

    @property
    def holder(self) -> Holder:
        """Return whose slot it is."""
        return Holder(self.uid, self.container)


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition as all Kubernetes objects have them."""

    type: Name
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
    """What the agent says of its node. `heartbeat` is RFC 3339, written at least every half minute.

    `ready` is false where nothing new may be placed: the agent has stopped, or says in a condition why.
    """

    ready: Annotated[bool, _is("Whether anything new may be placed here.")] = False
    heartbeat: Annotated[str, _is("When the agent last wrote.")] = ""
    agent_version: str = ""
    cards: Annotated[tuple[CardStatus, ...], Meta(max_length=MOST_CARDS)] = ()
    slots: tuple[SlotStatus, ...] = ()
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=_by("type"))] = ()
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


class GpuNodes:
    """What a reflector needs to know of GPUNodes; those that are odd in part are read all the same."""

    type = GpuNode

    def __init__(self, domain: str = DOMAIN) -> None:
        self.path = path(domain=domain)

    def keep(self, item: GpuNode) -> GpuNode:
        """Keep all of it."""
        return item

    def salvage(self, raw: bytes | msgspec.Raw) -> GpuNode:
        """Return what can be read of an object that is odd."""
        return read(raw)


_STRICT: Final = msgspec.json.Decoder(GpuNode)


def read(raw: bytes | msgspec.Raw) -> GpuNode:
    """Return an object; what cannot be read of it is left out and logged.

    Another version of Gaia may write what this one does not know, and that must stop nobody. A
    reservation or a slot is left out only where what it counts cannot be read.

    Raises:
        msgspec.DecodeError: it is no object, or its metadata is none.
    """
    try:
        return _STRICT.decode(raw)
    except msgspec.ValidationError:
        faults: list[str] = []
        node = tolerant.read(msgspec.json.decode(raw), GpuNode, KIND, faults)
        for fault in faults:
            log.warning("a part of a GPUNode cannot be read", name=node.metadata.name, why=fault)
        return node


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
