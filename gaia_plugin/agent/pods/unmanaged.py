"""What slips past the library, and what is in nobody's slot: the rules. Pure.

The driver lists who holds memory of a card; the kernel says in which container each of them is; the usage
pages say who registered with the library. Whatever does not come together is told. What is in no slot is
booked, too: the ledger must not give away what somebody has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT, format_memory, units_down, units_up


class Kind(StrEnum):
    """What is wrong, in the words of metrics."""

    NO_LIBRARY = "no_library"
    """In a slot's container, and not in its usage page: nothing limits it."""
    NO_SLICE = "no_slice"
    """In a container that has no slice of this card."""
    HOST = "host"
    """In no pod at all."""
    OVER_SLOT = "over_slot"
    """A slot's processes took more than it was ever given."""
    OTHERS_PAGE = "others_page"
    """Registered in the usage page of another container's slot."""


class OnCard(NamedTuple):
    """A slot on a card."""

    slot: str
    card: str


@dataclass(frozen=True, slots=True)
class Process:
    """A process that the driver lists on a card, and what the kernel says of it.

    `bytes` is None where the driver gives no figure. `uid` and `container_id` are empty outside of pods,
    `container` also while its name is not known. `slots` are those of its container with a slice of this
    card: several where it is not known yet which container it is. `named` is whether one of their usage
    pages has it.
    """

    card: str
    pid: int
    bytes: int | None
    name: str = ""
    uid: str = ""
    container_id: str = ""
    container: str = ""
    slots: tuple[str, ...] = ()
    named: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """What a finding is about: all of one kind in one container (or in none) on one card."""

    kind: Kind
    card: str
    uid: str = ""
    container: str = ""
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a subject in one round. `bytes` is None where no figure of the driver's says more.

    `container_ids` are the runtime's IDs of the containers concerned. `granted` is what the slot had been
    given before, in units, where the kind is `OVER_SLOT`; `page` says whose page it is for `OTHERS_PAGE`.
    """

    pids: tuple[int, ...]
    names: tuple[str, ...] = ()
    bytes: int | None = None
    container_ids: frozenset[str] = frozenset()
    granted: int = 0
    page: str = ""


def kind_of(process: Process) -> Kind | None:
    """Return what is wrong with a process; None: nothing, as far as one process goes."""
    if process.bytes == 0:
        return None
    if process.slots:
        return None if process.named else Kind.NO_LIBRARY
    return Kind.NO_SLICE if process.uid else Kind.HOST


def unmanaged(processes: Iterable[Process]) -> dict[Subject, Sight]:
    """Return what is wrong with single processes, by subject."""
    found: dict[Subject, list[Process]] = {}
    for process in processes:
        kind = kind_of(process)
        if kind is not None:
            slot = process.slots[0] if process.slots else ""
            subject = Subject(kind, process.card, process.uid, process.container, slot)
            found.setdefault(subject, []).append(process)
    return {subject: sight_of(each) for subject, each in found.items()}


def sight_of(processes: Collection[Process], granted: int = 0) -> Sight:
    """Return some processes together."""
    known = [process.bytes for process in processes if process.bytes is not None]
    return Sight(
        pids=tuple(sorted(process.pid for process in processes)),
        names=tuple(sorted({process.name for process in processes if process.name})),
        bytes=sum(known) if len(known) == len(processes) else None,
        container_ids=frozenset(process.container_id for process in processes if process.container_id),
        granted=granted,
    )


def over_slot(processes: Iterable[Process], raised: Mapping[OnCard, int]) -> dict[Subject, Sight]:
    """Return the slots that took more than they were given.

    Args:
        processes: all that were seen.
        raised: units that a slot held on a card before it was found to have more.
    """
    found: dict[OnCard, list[Process]] = {}
    for process in processes:
        for slot in process.slots:
            if OnCard(slot, process.card) in raised:
                found.setdefault(OnCard(slot, process.card), []).append(process)
    return {
        Subject(Kind.OVER_SLOT, where.card, each[0].uid, each[0].container, where.slot): sight
        for where, each in found.items()
        if (sight := sight_of(each, raised[where])).bytes is None
        or units_up(sight.bytes or 0) > raised[where]
    }


def foreign_units(processes: Iterable[Process], used: int | None, held: Mapping[str, int]) -> tuple[int, int]:
    """Return the units of one card that are in use by nobody's slot.

    The first number is what processes of no slot have by the driver's list; the second is what the card
    has in use beyond everything that is listed: programs that do not compute, figures that are missing.
    The second is rounded down, for every card has some megabytes in use that nobody takes.

    Args:
        processes: those of the card.
        used: bytes in use on the card, the driver's reserve not counted; None: no figure.
        held: units held by slot; a slot without figures is taken to use all that it holds.
    """
    foreign, listed, silent = 0, 0, set()
    for process in processes:
        listed += process.bytes or 0
        if process.slots:
            silent |= set(process.slots) if process.bytes is None else set()
        else:
            foreign += process.bytes or 0
    unseen = sum(held.get(slot, 0) for slot in silent) * MEMORY_UNIT
    rest = 0 if used is None else max(0, used - listed - unseen)
    return units_up(foreign), units_down(rest)


@dataclass(frozen=True, slots=True)
class Excess:
    """By how many units a slot uses more of a card than is in force there."""

    where: OnCard
    units: int


def overbookers(
    over: Mapping[str, Share],
    excesses: Iterable[Excess],
    raised: Collection[OnCard],
    inherited: Collection[str],
) -> list[OnCard]:
    """Return whom to stop: on each overbooked card the one that took most, of those that took too much.

    A slot that was shrunk uses more than is in force as well, and has done nothing wrong: it holds that.
    So only those are meant that were seen to take more than they held.

    Args:
        over: by how much each card is overbooked.
        excesses: of all slots that use more than is in force.
        raised: slots that were seen to take more than they held.
        inherited: cards that were overbooked when this agent started. Nobody remembers who it was there,
            so whoever uses more than is in force is meant.
    """
    worst: dict[str, Excess] = {}
    for each in excesses:
        card = each.where.card
        known = any(where.card == card for where in raised)
        meant = each.where in raised or (card in inherited and not known)
        if card in over and over[card].units > 0 and each.units > 0 and meant:
            before = worst.get(card)
            if before is None or (each.units, each.where) > (before.units, before.where):
                worst[card] = each
    return [each.where for each in worst.values()]


def amount_text(sight: Sight) -> str:
    """Write how much is held, for people."""
    return "an amount that the driver does not tell" if sight.bytes is None else format_memory(sight.bytes)


def processes_text(sight: Sight) -> str:
    """Write which processes they are, for people; of many only the first."""
    pids = ", ".join(str(pid) for pid in sight.pids[:4]) + ("..." if len(sight.pids) > 4 else "")
    names = f" ({', '.join(sight.names[:3])})" if sight.names else ""
    return f"process {pids}{names}" if len(sight.pids) == 1 else f"processes {pids}{names}"


def sentence(subject: Subject, sight: Sight, card: str) -> str:
    """Return what people are told: what is wrong, and what they can do.

    Args:
        subject: what it is about.
        sight: what was seen.
        card: how the card is called, such as ``card 0``.
    """
    who, amount = processes_text(sight), amount_text(sight)
    where = f"in container {subject.container} " if subject.container else ""
    who = who[0].upper() + who[1:]
    verb = "holds" if len(sight.pids) == 1 else "hold"
    match subject.kind:
        case Kind.NO_LIBRARY:
            return (
                f"{who} {where}{verb} {amount} of {card} and did not register with Gaia's library: no limit "
                "holds there. Programs must load the libcuda.so.1 that the container was given; end those "
                "that bring a driver of their own or are linked statically."
            )
        case Kind.NO_SLICE:
            return (
                f"{who} {where}{verb} {amount} of {card}, of which that container has no slice. So much of "
                "the card is not given to others. Ask for a slice in the pod, or take the device from it."
            )
        case Kind.HOST:
            return (
                f"{who} of this machine, outside of any pod, {verb} {amount} of {card}, which Gaia shares. "
                "So much of it is not given to pods; end the program, and it comes back."
            )
        case Kind.OVER_SLOT:
            given = format_memory(sight.granted * MEMORY_UNIT)
            return (
                f"{who} {where}{verb} {amount} of {card}, and {given} were given: more was taken than is "
                "allowed, past Gaia's library. If the card lacks that for others, the container is stopped."
            )
        case Kind.OTHERS_PAGE:
            if not subject.uid:
                return f"{who} of this machine, in no pod, registered in the usage page of {sight.page}."
            return (
                f"{who} {where}registered in the usage page of {sight.page}, so another's limits hold there. "
                "The container is stopped; when it is started again it is given its own."
            )
