"""One look at all processes on the cards: the driver's list beside the kernel's, the ledger and the pages.

The order matters: the driver was asked before the pages are read. A program registers with the library
before it can have memory, so whoever the driver listed is in its page by then, or never was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gaia_plugin import __version__
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.unmanaged import Excess, Kind, OnCard, Process, Sight, Subject
from gaia_plugin.agent.readings import Figures, Reader
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots.members import ContainerMembers, Place
from gaia_plugin.slots.processes import process_name
from gaia_plugin.slots.usage import Usage
from gaia_plugin.units import units_up

_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver said: bytes by card and pid, and bytes in use by card; the rest is missing."""

    figures: Figures = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw.

    `peers` are processes registered in another slot's page. `held` is units by card and slot, `libraries`
    the versions by slot with how many living processes have each.
    """

    processes: tuple[Process, ...]
    peers: Mapping[Subject, Sight]
    over: Mapping[str, Share]
    excesses: tuple[Excess, ...]
    raised: Mapping[OnCard, int]
    held: Mapping[str, Mapping[str, int]]
    libraries: Mapping[str, Mapping[str, int]]
    names: Mapping[str, str]
    """How each card is called, by UUID."""
    blind: frozenset[str]
    """Cards of which the driver told nothing."""


def read(reader: Reader, cards: Iterable[str]) -> Reading:
    """Ask the driver. What a card has in use is asked for before and after, for memory comes and goes."""
    known = list(cards)
    before = reader.used(known)
    figures = reader.figures(known)
    after = reader.used(known)
    return Reading(figures, {card: min(before[card], after[card]) for card in before if card in after})


def look(core: PodCore, members: ContainerMembers, reading: Reading, proc: Path = _PROC) -> Look:
    """Put everything beside what the driver said.

    It may take a while with many slots, and changes nothing: no step of the core needs to wait for it.
    """
    records = core.ledger.slots()
    usages = {record.slot: core.directories.usage(record.slot) for record in records}
    owners: dict[str, list[SlotRecord]] = {}
    for record in records:
        owners.setdefault(record.owner, []).append(record)
    processes = tuple(_processes(reading.figures, members, owners, usages))
    cards = core.ledger.cards()
    return Look(
        processes=processes,
        peers=_peers(core, records, usages, members, owners, proc),
        over=core.ledger.overbooked(),
        excesses=tuple(_excesses(records, processes)),
        raised=dict(core.raised),
        held={
            card.uuid: {record.slot: part.held.units for record in records if (part := record.on(card.uuid))}
            for card in cards
        },
        libraries={slot: found for slot, usage in usages.items() if (found := _libraries(usage))},
        names={card.uuid: f"card {card.index} ({card.uuid})" for card in cards},
        blind=frozenset(card.uuid for card in cards if card.uuid not in reading.figures),
    )


def forget_settled(core: PodCore) -> None:
    """Forget who took more than it was given and has no more than that now. A step of the core."""
    held = {OnCard(record.slot, part.card): part for record in core.ledger.slots() for part in record.slices}
    core.raised = {
        where: units
        for where, units in core.raised.items()
        if where in held and held[where].held.units > max(units, held[where].target.units)
    }


def _processes(
    figures: Figures,
    members: ContainerMembers,
    owners: Mapping[str, list[SlotRecord]],
    usages: Mapping[str, Usage],
) -> Iterable[Process]:
    registered = {slot: {each.pid for each in usage.processes} for slot, usage in usages.items()}
    for card, listed in figures.items():
        for pid, figure in listed.items():
            place = members.place(pid)
            if place is None or pid == os.getpid():
                continue  # it has ended meanwhile, or it is this agent
            mine = [record for record in _of(place, owners) if record.on(card) is not None]
            slots = tuple(record.slot for record in mine)
            # of a pod's only slot the container is known before the API server shows its ID
            name = place.name or (mine[0].name if len(mine) == 1 else "")
            yield Process(
                card, pid, figure, process_name(pid), place.pod, place.container, name, slots,
                any(pid in registered[slot] for slot in slots),
            )  # fmt: skip


def _of(place: Place, owners: Mapping[str, list[SlotRecord]]) -> list[SlotRecord]:
    """Return the slots of a process's container: all of its pod while it is not known which one that is."""
    return [record for record in owners.get(place.pod, ()) if place.name in ("", record.name)]


def _excesses(records: Iterable[SlotRecord], processes: Iterable[Process]) -> Iterable[Excess]:
    use: dict[OnCard, int] = {}
    for process in processes:
        for slot in process.slots:
            where = OnCard(slot, process.card)
            use[where] = use.get(where, 0) + (process.bytes or 0)
    for record in records:
        for part in record.slices:
            where = OnCard(record.slot, part.card)
            units = units_up(use.get(where, 0)) - part.target.units
            if units > 0:
                yield Excess(where, units)


def _libraries(usage: Usage) -> dict[str, int]:
    found: dict[str, int] = {}
    for process in usage.processes:
        if process.library:
            text = version_text(process.library)
            found[text] = found.get(text, 0) + 1
    return found


def version_text(word: int) -> str:
    """Return a library's version word as people write it."""
    return f"{(word >> 32) & 0xFFFF}.{(word >> 16) & 0xFFFF}.{word & 0xFFFF}"


def library_note(libraries: Mapping[str, int]) -> str:
    """Return the sentence about programs with another version of the library; empty: there are none."""
    others = {version: count for version, count in libraries.items() if version != __version__}
    if not others:
        return ""
    count, versions = sum(others.values()), " and ".join(sorted(others))
    programs = "1 program has" if count == 1 else f"{count} programs have"
    return (
        f"{programs} version {versions} of Gaia's library loaded, and this agent brings {__version__}. "
        "They go on under their limits; what is started from now on has the new one."
    )


# -- who is registered in a page that is not its own


def _peers(
    core: PodCore,
    records: Iterable[SlotRecord],
    usages: Mapping[str, Usage],
    members: ContainerMembers,
    owners: Mapping[str, list[SlotRecord]],
    proc: Path,
) -> dict[Subject, Sight]:
    found: dict[Subject, Sight] = {}
    for record in records:
        for pid, start in usages[record.slot].absent:
            for twin in members.elsewhere(record.slot, pid, start):
                if not maps(twin.pid, core.directories.usage_path(record.slot), proc):
                    continue  # only by chance it has the pid and start time of one that ended here
                slot = next((each.slot for each in _of(twin, owners)), "")
                subject = Subject(Kind.OTHERS_PAGE, "", twin.pod, twin.name, slot)
                before = found.get(subject, Sight(()))
                found[subject] = Sight(
                    tuple(sorted({*before.pids, twin.pid})),
                    tuple(sorted({*before.names, process_name(twin.pid)} - {""})),
                    container_ids=before.container_ids | ({twin.container} if twin.container else set()),
                    page=f"{record.label or record.owner}, container {record.name}",
                )
    return found


def maps(pid: int, page: Path, proc: Path = _PROC) -> bool:
    """Tell whether a process has this very file mapped; False where that cannot be seen."""
    try:
        wanted = os.stat(page)
        lines = (proc / str(pid) / "maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}"
    for line in lines:
        fields = line.split(maxsplit=5)
        # each usage page lies on a file system of its own, so their inode numbers are all alike
        if len(fields) >= 5 and fields[4] == str(wanted.st_ino) and fields[3] == device:
            return True
    return False
