"""After a start: compares what the ledger has with what runs, and enters what it has lost.

The ledger begins this with what SQLite and the slot directories say (`PodCore.recover`). What the API
server shows comes later, and until then nothing new is placed. A difference is reported and never
resolved against a container that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from gaia_plugin.agent.pods import lost
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.placed import largest_card, maximum
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.errors import Refusal
from gaia_plugin.kube.placement import Ignored, placed
from gaia_plugin.kube.pods import Pod, holders
from gaia_plugin.kube.wishes import Wish, wish_of
from gaia_plugin.ledger import CardCapacity, SlotRecord
from gaia_plugin.placement import CardState, cards_wanted, normalise
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.slots.names import slot_name

log = structlog.get_logger(__name__)

FROM_ANNOTATION = (
    "Ledger and directory of this slot were lost while its container ran; it is booked as its pod's "
    "placement says. A change of its size is felt when the container starts again."
)
FROM_SPEC = (
    "Ledger and directory of this slot were lost while its container ran; it is booked on the cards that "
    "its CDI spec names. A change of its size is felt when the container starts again."
)


class Desk(Protocol):
    """What recovery asks of the node."""

    core: PodCore

    async def records(self) -> list[SlotRecord]:
        """Return all slots."""

    async def states(self) -> list[CardState]:
        """Return the cards as placement sees them."""

    async def adopt(self, record: SlotRecord, why: str) -> None:
        """Enter a slot that runs."""

    async def amend(self, slot: str, label: str, most: Share) -> None:
        """Complete a slot that was entered without its pod."""

    async def cards_in_spec(self, owner: Owner) -> list[str]:
        """Return the cards that the CDI spec of a container names; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs with a slice and has no slot."""

    owner: Owner
    pod: Pod


def without_slot(pods: list[Pod], records: list[SlotRecord], sight: Sight, domain: str) -> list[Running]:
    """Return the containers that run with a slice while the ledger knows nothing of it."""
    known = {Owner(record.owner, record.name) for record in records}
    found = []
    for pod in pods:
        for container in holders(pod, domain):
            owner = Owner(pod.uid, container.name)
            status = pod.container_status(container.name)
            runs = status is not None and status.state is not None and status.state.running is not None
            if runs and owner not in known and sight.life(owner) is Life.LIVING:
                found.append(Running(owner, pod))
    return found


async def reconcile(desk: Desk, sight: Sight) -> None:
    """Enter what runs and is not known, and complete what was entered without its pod.

    Raises:
        Refusal: the ledger cannot be written now; it has to be done again before anything is placed.
    """
    core = desk.core
    for running in without_slot(sight.pods(), await desk.records(), sight, core.domain):
        await _enter(desk, running)
    for record in await desk.records():
        pod = sight.pod(record.owner)
        if record.label or pod is None or record.releasing:
            continue
        try:
            wish = wish_of(pod, record.name, domain=core.domain, card_units=largest_card(core.cards))
            most = maximum(wish, core.cards)
        except Refusal:
            most = record.maximum
        await desk.amend(record.slot, pod.title, most)


async def _enter(desk: Desk, running: Running) -> None:
    core, pod, owner = desk.core, running.pod, running.owner
    try:
        wish = wish_of(pod, owner.container, domain=core.domain, card_units=largest_card(core.cards))
    except Refusal as refusal:
        log.error("a container runs that asks for what cannot be", pod=pod.title, why=refusal.sentence)
        return
    states = await desk.states()
    slices = placed(pod, owner.container, wish.request, states, node=core.node_name, domain=core.domain)
    why = FROM_ANNOTATION
    if isinstance(slices, Ignored):
        shares = _by_cards(await desk.cards_in_spec(owner), wish, states)
        why = FROM_SPEC
    else:
        shares = {part.card: part.share for part in slices}
    if not shares:
        log.error(
            "a container runs and nothing says on which card; what it uses is seen by the driver only",
            pod=pod.title,
            container=owner.container,
        )
        return
    record = lost.from_shares(
        slot_name(owner.uid, owner.container), owner.uid, owner.container, pod.title,
        shares, _maximum(wish, core.cards), wish.compute,
    )  # fmt: skip
    await desk.adopt(record, why)


def _maximum(wish: Wish, cards: tuple[CardCapacity, ...]) -> Share:
    return maximum(wish, cards) if cards else NOTHING


def _by_cards(uuids: list[str], wish: Wish, states: list[CardState]) -> Mapping[str, Share]:
    known = {card.uuid: card for card in states}
    if len(uuids) != cards_wanted(wish.request) or not set(uuids) <= set(known):
        return {}
    return {uuid: normalise(wish.request, known[uuid]) for uuid in uuids}
