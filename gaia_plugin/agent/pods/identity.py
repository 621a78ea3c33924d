"""Whose devices are these? From what was answered, the kubelet's checkpoint and the pods. Pure.

Nothing here guesses. A name that was answered is found in the checkpoint beside the UID that it went
to, or its owner is not known. Where two pods were given the same devices (one was deleted by force and
its successor was given them at once) both are answered for, each by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gaia_plugin.ledger.allocations import Allocation, nonce_of


class Entry(Protocol):
    """What the kubelet's checkpoint says of one resource of one container."""

    @property
    def uid(self) -> str:
        """UID of the pod."""

    @property
    def container(self) -> str:
        """Name of the container, init containers included."""

    @property
    def resource(self) -> str:
        """Full name of the resource."""

    @property
    def ids(self) -> frozenset[str]:
        """The device IDs."""

    @property
    def cdi_names(self) -> Collection[str]:
        """The qualified names that were answered."""


class Life(Enum):
    """What the API server shows of a container."""

    LIVING = "living"
    ENDED = "ended"
    """Ended for good, or its pod is gone."""
    UNKNOWN = "unknown"
    """Not shown: it may not have arrived, or it may have gone unseen."""


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """A container of a pod."""

    uid: str
    container: str


@dataclass(frozen=True, slots=True)
class Found:
    """A name of ours in the checkpoint, with the owner that it says."""

    resource: str
    ids: frozenset[str]
    nonce: str
    owner: Owner


def names_in(entries: Iterable[Entry], kind: str) -> list[Found]:
    """Return what the checkpoint says of names of our `kind`; what is no such name is left out."""
    found = []
    for entry in entries:
        for qualified in entry.cdi_names:
            vendor_class, _, name = qualified.partition("=")
            nonce = nonce_of(name, entry.resource, entry.ids) if vendor_class == kind else None
            if nonce is not None and entry.uid:
                owner = Owner(entry.uid, entry.container)
                found.append(Found(entry.resource, entry.ids, nonce, owner))
    return found


def news(rows: Iterable[Allocation], found: Iterable[Found]) -> tuple[list[Found], list[str]]:
    """Return what `found` adds to `rows`, and a sentence for each contradiction.

    A name that was bound stays bound: a running container may have been given by it.
    """
    known = {row.nonce: row for row in rows}
    new: dict[str, Found] = {}
    strange = []
    for each in found:
        row = known.get(each.nonce)
        first = new.get(each.nonce)
        bound = Owner(row.uid, row.container) if row is not None and row.bound else None
        before = bound or (first.owner if first is not None else None)
        if before is None:
            new[each.nonce] = each
        elif before != each.owner:
            strange.append(
                f"The kubelet's checkpoint gives the name of {before.uid}/{before.container} to "
                f"{each.owner.uid}/{each.owner.container} as well; it stays with the first."
            )
    return list(new.values()), strange


@dataclass(frozen=True, slots=True)
class Answer:
    """What a `PreStartContainer` has to see to.

    `ensure` are the containers to be given their slots. `wait` is one that the API server has to show
    first. `refuse` is a sentence where there is neither.
    """

    ensure: tuple[Owner, ...] = ()
    wait: Owner | None = None
    refuse: str = ""


def answer(
    rows: Sequence[Allocation], life: Callable[[Owner], Life], has_slot: Callable[[Owner], bool]
) -> Answer:
    """Return what to do for the container that holds the devices of `rows` (newest first).

    A container with a slot needs no API server. Of the others only the newest is waited for: the
    kubelet gives devices to a second container only when it believes the first to be gone, and one
    that is ready meanwhile cannot get anything but its own by its own name.
    """
    ensure: dict[Owner, None] = {}
    newest: Owner | None = None
    wait: Owner | None = None
    ended = 0
    for row in rows:
        if not row.bound:
            continue
        owner = Owner(row.uid, row.container)
        newest = newest or owner
        state = life(owner)
        if state is Life.ENDED:
            ended += 1
        elif state is Life.LIVING or has_slot(owner):
            ensure[owner] = None
        elif owner == newest:
            wait = owner
    if ensure or wait is not None:
        return Answer(tuple(ensure), wait)
    if ended:
        return Answer(refuse="The pod that was given these devices has ended; nothing is started for it.")
    return Answer(
        refuse="The kubelet's record does not say yet which pod was given these devices; it is read again."
    )


def twice(rows: Iterable[Allocation], life: Callable[[Owner], Life]) -> list[tuple[Owner, Owner]]:
    """Return pairs of living containers that were given the same device of a resource.

    An ID stands for no card, so this gives nobody another's slice; but the kubelet counts wrongly then.
    """
    holder: dict[tuple[str, str], Owner] = {}
    pairs: dict[tuple[Owner, Owner], None] = {}
    for row in rows:
        owner = Owner(row.uid, row.container)
        if not row.bound or life(owner) is not Life.LIVING:
            continue
        for device in row.ids:
            other = holder.setdefault((row.resource, device), owner)
            # an init container hands its devices on to those of its own pod
            if other.uid != owner.uid:
                first, second = sorted((other, owner))
                pairs[first, second] = None
    return list(pairs)


def names_of(rows: Iterable[Allocation], owner: Owner, memory: str) -> Mapping[str, bool]:
    """Return the names of a container; True for those behind which everything belongs.

    That is its memory's where it has any, else its cores'. The kubelet may have asked twice for one
    resource; then both names are the container's.
    """
    mine = [row for row in rows if (row.uid, row.container) == (owner.uid, owner.container)]
    by_memory = any(row.resource == memory for row in mine)
    return {row.name: not by_memory or row.resource == memory for row in mine}
