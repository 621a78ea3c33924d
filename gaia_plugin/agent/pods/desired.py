"""Sizes that operators ask for by an annotation on a pod, each carried out once.

``vgpu-desired`` is JSON: ``{"memory": "8GiB", "cores": 50}`` for a pod with one container that has a slice,
else ``{"<container>": {...}}``. What became of it is kept in the ledger beside the slot, so that an agent
that starts again does not undo what the pod's user asked for later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, ParamSpec, Protocol, TypeVar

import msgspec
import structlog

from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.news import ANNOTATION, asked_by
from gaia_plugin.agent.pods.ports import Server
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.agent.pods.status import read_desired, write_desired
from gaia_plugin.agent.wishes import shares_of
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube.gpunode import DesiredStatus
from gaia_plugin.kube.pods import Pod, holders
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.shares import NOTHING

log = structlog.get_logger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

SHORTEST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two tries of what found no room, doubled each time."""

_LONGEST: Final = 512
"""Characters of an annotation that are read and kept; more is no size."""

_LATER: Final = (Code.CARD_FULL, Code.UNAVAILABLE, Code.STALE, Code.TOO_MANY_REQUESTS)
_KNOWN: Final = {"memory", "cores"}
State = Literal["Applied", "Deferred", "Infeasible"]


def key_of(domain: str) -> str:
    """Return the annotation's name."""
    return f"{domain}/vgpu-desired"


def part_of(text: str, container: str, containers: Sequence[str]) -> models.Resize | None:
    """Return what an annotation asks for one container; None: nothing.

    Args:
        text: of the annotation.
        container: with a slice.
        containers: all of the pod that have one.

    Raises:
        Refusal: ``invalid_amount``: it is not what it should be.
    """
    try:
        given = msgspec.json.decode(text) if len(text) <= _LONGEST else None
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, dict) or not given:
        raise _odd('Write it as {"memory": "8GiB", "cores": 50}, or the same for each container by its name.')
    if set(given) <= _KNOWN and not set(given) & set(containers):
        if len(containers) > 1:
            named = " or ".join(sorted(containers))
            raise _odd(f"This pod has several containers with a slice; name the one that is meant: {named}.")
        return _resize(given)
    if strange := sorted(set(given) - set(containers)):
        raise _odd(_no_name(strange, given, containers))
    mine = given.get(container)
    if mine is None:
        return None
    if not isinstance(mine, dict) or not mine or not set(mine) <= _KNOWN:
        raise _odd(f"For container {container} it takes memory, cores or both, and nothing else.")
    return _resize(mine)


def _no_name(strange: Sequence[str], given: Collection[str], containers: Sequence[str]) -> str:
    if amounts := sorted(_KNOWN & set(strange)):
        other = sorted(set(given) - _KNOWN)
        beside = f"{amounts[0]} beside {other[0][:40]!r}"
        return f"It takes memory and cores, or names of containers, and not {beside}."
    those = f"{'it is' if len(containers) == 1 else 'those are'} {' and '.join(sorted(containers))}"
    return f"No container {strange[0][:40]!r} of this pod has a slice; {those}."


def _resize(given: dict[str, object]) -> models.Resize:
    return models.Resize(memory=given.get("memory"), cores=given.get("cores"))


def _odd(hint: str) -> Refusal:
    return Refusal(Code.INVALID_AMOUNT, f"The annotation vgpu-desired cannot be carried out. {hint}")


class Desk(Protocol):
    """What is asked of the node."""

    core: PodCore

    async def do(self, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a step of the core, alone."""

    async def records(self) -> list[SlotRecord]:
        """Return all slots."""

    async def resize(self, slot: str, wish: models.Resize, generation: int | None) -> models.Resized:
        """Set a slot's amounts."""

    def touch(self, slot: str) -> None:
        """Tell that a slot has changed."""


@dataclass
class _Pause:
    """When something was tried last, and for how long it then waits unless room appears."""

    tried: float = float("-inf")
    length: float = SHORTEST_PAUSE

    def over(self, now: float, room: bool) -> bool:
        """Tell whether it is to be tried again; whatever room there seems to be, not at once."""
        return now - self.tried >= (SHORTEST_PAUSE if room else self.length)


@dataclass
class Desires:
    """Compares annotations with what was carried out, and carries out what is new.

    Args:
        desk: the node.
        sight: the pods.
        server: the API server.
        clock: monotonic seconds.
    """

    desk: Desk
    sight: Sight
    server: Server
    clock: Callable[[], float] = time.monotonic
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a pod or the room on a card has changed."""
    _pauses: dict[str, _Pause] = field(default_factory=dict)

    async def round(self) -> None:
        """Look at all slots once; a grow that waits for the API server holds no other slot up."""
        records = await self.desk.records()
        for gone in set(self._pauses) - {record.slot for record in records}:
            del self._pauses[gone]
        looks = []
        for record in records:
            pod = self.sight.pod(record.owner)
            living = self.sight.life(Owner(record.owner, record.name)) is Life.LIVING
            if pod is not None and living and not (record.reserved or record.releasing):
                looks.append(self._look(pod, record))
        await asyncio.gather(*looks)

    async def _look(self, pod: Pod, record: SlotRecord) -> None:
        domain = self.desk.core.domain
        raw = pod.annotations.get(key_of(domain))
        before = read_desired(record.desired)
        containers = [each.name for each in holders(pod, domain)]
        text, wish, why = ("", None, "") if raw is None else _read(raw, record.name, containers)
        if wish is None and not why:  # it was taken away, or is for other containers now
            if before is not None:
                await self._note(record, None)
            return
        again = before is not None and before.text == text
        if before is not None and again and before.state != "Deferred":
            return
        if again and wish is not None and not await self._due(record, wish):
            return
        state: State = "Infeasible"
        if wish is not None:
            state, why = await self._carry_out(record, wish)
        self._wait(record.slot, state)
        after = DesiredStatus(text=text, state=state, message=why)
        if after == before or not await self._note(record, after):
            return
        # while it waits, what the card lacks changes all the time
        if before is None or (after.text, after.state) != (before.text, before.state):
            await self._tell(pod, record, after)

    async def _carry_out(self, record: SlotRecord, wish: models.Resize) -> tuple[State, str]:
        token = asked_by.set(ANNOTATION)
        try:
            await self.desk.resize(record.slot, wish, None)
        except Refusal as refusal:
            return ("Deferred" if refusal.code in _LATER else "Infeasible"), refusal.sentence
        finally:
            asked_by.reset(token)
        return "Applied", ""

    async def _due(self, record: SlotRecord, wish: models.Resize) -> bool:
        pause = self._pauses.setdefault(record.slot, _Pause())
        return pause.over(self.clock(), await self.desk.do(_fits, self.desk.core, record.slot, wish))

    def _wait(self, slot: str, state: State) -> None:
        if state != "Deferred":
            self._pauses.pop(slot, None)
            return
        pause = self._pauses.setdefault(slot, _Pause())
        pause.tried = self.clock()
        pause.length = min(LONGEST_PAUSE, 2 * pause.length)

    async def _note(self, record: SlotRecord, after: DesiredStatus | None) -> bool:
        """Keep what became of it, beside the slot; tell whether it is kept."""
        try:
            await self.desk.do(self.desk.core.ledger.note_desired, record.slot, write_desired(after))
        except Refusal as refusal:
            log.warning("what was desired is not noted", slot=record.slot, why=refusal.sentence)
            return False
        self.desk.touch(record.slot)
        return True

    async def _tell(self, pod: Pod, record: SlotRecord, after: DesiredStatus) -> None:
        if after.state == "Applied":
            return
        log.info("desired and not done", pod=pod.title, state=after.state, why=after.message)
        later = "not yet; it is tried again by itself. " if after.state == "Deferred" else ""
        await self.server.tell(
            pod, f"Resize{after.state}", f"Container {record.name}: {later}{after.message}", action="Resize"
        )


def _fits(core: PodCore, slot: str, wish: models.Resize) -> bool:
    """Tell whether a size would be granted now, as far as this node knows. A step of the core."""
    try:
        record = core.ledger.slot(slot)
        asked = sum(shares_of(record, wish).values(), NOTHING)
        return asked.fits(core.ledger.could_reach(slot))
    except Refusal:
        return False


def _read(raw: str, container: str, containers: Sequence[str]) -> tuple[str, models.Resize | None, str]:
    """Return the text that was meant for a container, its wish, and else why there is none."""
    try:
        wish = part_of(raw, container, containers)
    except Refusal as refusal:
        return raw[:_LONGEST], None, refusal.sentence
    if wish is None:
        return "", None, ""
    both = {"memory": wish.memory, "cores": wish.cores}
    said = {amount: value for amount, value in both.items() if value is not None}
    return msgspec.json.encode(said, order="sorted").decode(), wish, ""
