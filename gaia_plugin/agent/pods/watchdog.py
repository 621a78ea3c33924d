"""Looks for what slips past the library, says so, books it, and stops who takes what a card does not have.

Two rounds, one after the other, have to see the same before anything is said of it. Nothing waits for the
API server: what is to be said is said beside the rounds, and stopping needs driver, ledger and kernel only.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog

from gaia_plugin.agent.pods import findings, unmanaged, watch
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.findings import Finding, Findings, Said, Suspect
from gaia_plugin.agent.pods.ports import Server
from gaia_plugin.agent.pods.sight import Sight as Pods
from gaia_plugin.agent.pods.unmanaged import Kind, OnCard, Subject
from gaia_plugin.agent.readings import Reader
from gaia_plugin.errors import Fatal
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import Condition
from gaia_plugin.metrics.snapshot import Watched
from gaia_plugin.slots.members import ContainerMembers
from gaia_plugin.slots.stop import kill_all
from gaia_plugin.units import MEMORY_UNIT, format_memory

log = structlog.get_logger(__name__)

EVERY: Final = 1.5
"""Seconds between two rounds: two rounds, and what was seen is told."""

ROUNDS: Final = 2
"""So many rounds have to see the same."""

GRACE: Final = 3.0
"""Seconds for which a card may be overbooked before somebody is stopped: most of it falls by itself."""

AGAIN: Final = 60.0
"""Seconds after which an eviction is tried again, and a stop that did not help is said again."""

REWORD: Final = 30.0
"""Seconds after which a condition tells new amounts: each change of it is a write to the API server."""

_FIRST_PATIENCE: Final = 3.0
_EVICTED: Final = (Kind.NO_LIBRARY, Kind.NO_SLICE, Kind.OVER_SLOT)


class Desk(Protocol):
    """What the watchdog asks of the node."""

    core: PodCore
    reader: Reader
    drain_wanted: asyncio.Event

    async def do(self, step: Callable[..., Any], *args: Any) -> Any:
        """Run a step in the thread of ledger and pages."""

    async def ask(self, step: Callable[..., Any], *args: Any) -> Any:
        """Ask the driver something."""

    def touch(self, slot: str) -> None:
        """Wake whoever waits for a change of the slot."""

    def more_room(self) -> None:
        """Tell that a card may have more or less room than before."""


@dataclass
class _Card:
    """Units of a card in use by nobody's slot, in the last rounds: by the list, and beyond it."""

    listed: deque[int] = field(default_factory=lambda: deque(maxlen=ROUNDS))
    beyond: deque[int] = field(default_factory=lambda: deque(maxlen=ROUNDS + 1))

    def add(self, listed: int, beyond: int) -> int:
        """Take in a round; return what all of the last ones saw: memory comes and goes between questions."""
        self.listed.append(listed)
        self.beyond.append(beyond)
        return min(self.listed) + min(self.beyond)


class Watchdog:
    """The rounds of one life of the agent; call its methods in the event loop.

    Args:
        desk: the node.
        members: knows which process is where.
        pods: what is seen of pods.
        server: the API server.
        evict: delete pods whose processes slip past the library.
        clock: monotonic seconds.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        desk: Desk,
        members: ContainerMembers,
        pods: Pods,
        server: Server,
        *,
        evict: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.desk = desk
        self.members = members
        self.pods = pods
        self.server = server
        self.evict = evict
        self.clock = clock
        self.findings = Findings()
        self.on_change: Callable[[], None] = lambda: None
        """Called when the condition or the use by nobody's slot has changed."""
        self.over_since: dict[OnCard, float] = {}
        self.inherited: set[str] | None = None
        self.stopped: dict[Kind, int] = {}
        self._wall = wall
        self._suspects: dict[Subject, Suspect] = {}
        self._cards: dict[str, _Card] = {}
        self._condition: Condition | None = None
        self._condition_of: tuple[frozenset[Subject], float] = (frozenset(), float("-inf"))
        self._said: dict[Subject, Said] = {}
        self._told: dict[tuple[str, str], float] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._old_libraries: dict[str, str] = {}

    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions of the node; none before the first round."""
        return () if self._condition is None else (self._condition,)

    def watched(self) -> Watched:
        """Return what was found, for metrics."""
        found = self.findings
        stopped = {str(kind): count for kind, count in self.stopped.items()}
        places = {(card, str(kind)): count for (card, kind), count in found.processes().items()}
        return Watched(places, found.foreign, stopped, found.libraries)

    async def close(self) -> None:
        """End what is being said."""
        for task in list(self._telling):
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def first(self) -> None:
        """Look once before anything is given away; a driver that hangs holds nobody up."""
        try:
            async with asyncio.timeout(_FIRST_PATIENCE):
                await self.round()
        except Fatal:
            raise
        except Exception as error:  # the rounds that follow say it, too
            log.warning("not looked at the cards yet", why=str(error) or repr(error))

    async def round(self) -> None:
        """Look at everything once, and do what follows from it."""
        cards = [card.uuid for card in self.desk.core.cards if card.healthy]
        reading = await self.desk.ask(watch.read, self.desk.reader, cards)
        await self.desk.do(watch.forget_settled, self.desk.core)
        seen = await asyncio.to_thread(watch.look, self.desk.core, self.members, reading)
        if self.inherited is None:
            self.inherited = set(seen.over)
        self.inherited &= set(seen.over)
        self._take_in(seen)
        foreign_changed = await self._book(seen, reading)
        await stop_overbooker(self, seen)
        await self._stop_peers()
        await self._note(seen)
        before, self._condition = self._condition, self._now()
        if foreign_changed or before != self._condition:
            self.on_change()
        self._tell_all()

    def _now(self) -> Condition:
        """Return the condition; amounts that change all the time are brought up to date now and then."""
        subjects, now = frozenset(each.subject for each in self.findings.found), self.clock()
        before, since = self._condition_of
        if self._condition is not None and subjects == before and now - since < REWORD:
            return self._condition
        self._condition_of = subjects, now
        return findings.condition(self.findings.found, self._condition, self._wall())

    def _take_in(self, seen: watch.Look) -> None:
        subjects = unmanaged.unmanaged(seen.processes) | unmanaged.over_slot(seen.processes, seen.raised)
        subjects |= seen.peers
        self._suspects = findings.confirmed(self._suspects, subjects, seen.blind, self._wall())
        found = tuple(
            self._finding(subject, suspect, seen)
            for subject, suspect in self._suspects.items()
            if suspect.rounds >= ROUNDS
        )
        libraries: dict[str, int] = {}
        for versions in seen.libraries.values():
            for version, count in versions.items():
                libraries[version] = libraries.get(version, 0) + count
        self.findings = Findings(found, self.findings.foreign, libraries, dict(self.stopped))

    def _finding(self, subject: Subject, suspect: Suspect, seen: watch.Look) -> Finding:
        pod = self.pods.pod(subject.uid) if subject.uid else None
        card = seen.names.get(subject.card, subject.card)
        text = unmanaged.sentence(subject, suspect.sight, card)
        return Finding(subject, suspect.sight, text, "" if pod is None else pod.title, suspect.since)

    async def _book(self, seen: watch.Look, reading: watch.Reading) -> bool:
        """Keep what nobody's slot uses from being given away; tell whether that has changed."""
        before = dict(self.findings.foreign)
        now = {card: units for card, units in before.items() if card in seen.names}
        for card in reading.figures:
            mine = [process for process in seen.processes if process.card == card]
            listed, beyond = unmanaged.foreign_units(mine, reading.used.get(card), seen.held.get(card, {}))
            now[card] = self._cards.setdefault(card, _Card()).add(listed, beyond)
        now = {card: units for card, units in now.items() if units}
        if now == before:
            return False
        await self.desk.do(self.desk.core.ledger.set_foreign, now)
        log.warning("memory in use by no slot", units=now)
        found = self.findings
        self.findings = Findings(found.found, now, found.libraries, found.stopped)
        self.desk.more_room()
        return True

    # -- stopping

    async def _stop_peers(self) -> None:
        for each in self.findings.found:
            if each.subject.kind is Kind.OTHERS_PAGE and each.subject.uid:
                await self.stop(each.subject, each.sight.container_ids, each.sentence)

    async def stop(self, subject: Subject, container_ids: Iterable[str], why: str) -> None:
        """Kill every process of containers, and say why; the pod's restart policy decides what follows."""
        killed = 0
        for container in container_ids:
            # neither name nor pid decides here but the cgroup, and a process that forks is met again
            living = partial(self.members.living, subject.uid, container)
            killed += await asyncio.to_thread(kill_all, living)
        if not killed:
            return
        log.error("stopped a container", uid=subject.uid, container=subject.container, killed=killed, why=why)
        if subject.slot:
            self.desk.drain_wanted.set()
            self.desk.touch(subject.slot)
        if self._due(subject.uid, f"{subject.container} {subject.kind}"):
            self.stopped[subject.kind] = self.stopped.get(subject.kind, 0) + 1
            if subject.slot:
                await self.desk.do(self.desk.core.note, subject.slot, why)
            self._spawn(self._tell(subject.uid, "Stopped", why))

    def _due(self, uid: str, what: str) -> bool:
        """Tell whether something was not done to this pod just now already."""
        now = self.clock()
        self._told = {key: at for key, at in self._told.items() if now - at < AGAIN}
        return self._told.setdefault((uid, what), now) == now

    # -- saying

    async def _note(self, seen: watch.Look) -> None:
        """Let people who look at a slot see what was found there."""
        slots = {each.subject.slot for each in self.findings.found} | set(seen.libraries)
        notes = {}
        for slot in slots - {""}:
            old = watch.library_note(seen.libraries.get(slot, {}))
            if old and self._old_libraries.get(slot) != old:
                log.warning("another version of the library", slot=slot, why=old)
            self._old_libraries[slot] = old
            notes[slot] = " ".join(text for text in (self.findings.of_slot(slot), old) if text)
        self._old_libraries = {slot: old for slot, old in self._old_libraries.items() if slot in slots}
        core = self.desk.core
        changed = [slot for slot in notes.keys() | core.watched if notes.get(slot) != core.watched.get(slot)]
        core.watched = notes
        for slot in changed:
            self.desk.touch(slot)

    def _tell_all(self) -> None:
        now = self.clock()
        subjects = {each.subject for each in self.findings.found}
        # a program that is started and ended again and again is not said again each time
        self._said = {
            subject: said
            for subject, said in self._said.items()
            if subject in subjects or now - said.at < findings.AGAIN_SECONDS
        }
        for each in self.findings.found:
            if findings.worth_saying(self._said.get(each.subject), each.sight, now):
                self._said[each.subject] = Said(each.sight, now)
                log.warning("unmanaged", kind=str(each.subject.kind), pod=each.pod, why=each.sentence)
                if each.subject.uid:
                    reason = "".join(word.capitalize() for word in each.subject.kind.split("_"))
                    self._spawn(self._tell(each.subject.uid, reason, each.sentence))
            if self.evict and each.subject.kind in _EVICTED and self._due(each.subject.uid, "evict"):
                self._spawn(self._evict(each))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, uid: str, reason: str, sentence: str) -> None:
        pod = self.pods.pod(uid)
        if pod is not None:
            await self.server.tell(pod, reason, sentence)

    async def _evict(self, found: Finding) -> None:
        pod = self.pods.pod(found.subject.uid)
        if pod is None or pod.terminating:
            return
        try:
            await self.server.evict(pod, f"{found.sentence} The pod was deleted for it.", "Unmanaged")
        except ApiError as error:
            log.warning("not deleted", pod=pod.title, why=str(error))


async def stop_overbooker(dog: Watchdog, seen: watch.Look) -> None:
    """Stop the containers that took more of a card than it has, once that has lasted for a while.

    The processes are killed here and not by a deletion of the pod: that would need the API server, and as
    long as the pod's grace. What they held is measured and given back as after every end of a program.
    """
    now = dog.clock()
    meant = unmanaged.overbookers(seen.over, seen.excesses, seen.raised, dog.inherited or ())
    # of a card that tells nothing it is not known whether anything has changed
    kept = {where: since for where, since in dog.over_since.items() if where.card in seen.blind}
    dog.over_since = {where: dog.over_since.get(where, now) for where in meant} | kept
    for where in meant:
        if now - dog.over_since[where] < GRACE:
            continue
        mine = [p for p in seen.processes if p.card == where.card and where.slot in p.slots]
        if mine:
            subject = Subject(Kind.OVER_SLOT, where.card, mine[0].uid, mine[0].container, where.slot)
            sight = unmanaged.sight_of(mine)
            await dog.stop(subject, sight.container_ids, _overbooked(where, sight, seen))
            dog.over_since[where] = now  # what was held falls within a moment; then it is looked at again


def _overbooked(where: OnCard, sight: unmanaged.Sight, seen: watch.Look) -> str:
    lacking = format_memory(seen.over[where.card].units * MEMORY_UNIT)
    given = seen.raised.get(where)
    granted = "" if given is None else f", and {format_memory(given * MEMORY_UNIT)} were given"
    return (
        f"The container was stopped: its {unmanaged.processes_text(sight)} held "
        f"{unmanaged.amount_text(sight)} of {seen.names[where.card]}{granted}; the card lacked {lacking} for "
        "what others were promised. "
        "Use the CUDA library that the container is given, and ask for a larger slice."
    )
