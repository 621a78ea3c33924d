"""Why a pod has what it has, and what would have to be smaller for it to have more. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gaia_plugin.agent.pods.identity import Life, Owner
from gaia_plugin.agent.pods.placed import largest_card, maximum
from gaia_plugin.agent.pods.refusals import Refused
from gaia_plugin.agent.pods.status import read_desired
from gaia_plugin.agent.views import amounts
from gaia_plugin.api import models
from gaia_plugin.counted import Holder, Parts, counted
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu.topology import Topology
from gaia_plugin.kube.pods import Container, Pod, asks
from gaia_plugin.kube.wishes import Wish, wish_of
from gaia_plugin.ledger import CardCapacity, SlotRecord
from gaia_plugin.placement import CardState, accepts, cards_wanted, normalise, place
from gaia_plugin.placement.refusals import share_text
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import MEMORY_UNIT

UNMANAGED: Final = "programs without a slice"
_GONE: Final = "This pod is gone. What its programs still use stays booked until they have ended."


@dataclass(frozen=True, slots=True)
class Admitted:
    """What admission knows of a container; `left` are the seconds until it is deleted for want of room."""

    life: Life = Life.LIVING
    refused: Refused | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known on a node at one moment.

    Args:
        node, domain: its name in the cluster; of resources and annotations.
        cards: all cards.
        records: all slots.
        views: what the API shows of them, by slot.
        reserved: what the extender has promised, by container and card.
        foreign: units of each card in use by nobody's slot.
        titles: namespace/name of the pods of this node by UID.
        topology: how the cards are tied.
        now: monotonic seconds.
        doubt: why nothing new is made at present; empty: it is.
        unseen: why a pod that is not seen may be there; empty: it is gone.
        troubles: why cards are not healthy, by UUID.
    """

    node: str
    cards: Sequence[CardCapacity]
    records: Sequence[SlotRecord] = ()
    views: Mapping[str, models.Slot] = field(default_factory=dict)
    reserved: Mapping[Holder, Parts] = field(default_factory=dict)
    foreign: Mapping[str, int] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    topology: Topology = field(default_factory=Topology)
    now: float = 0.0
    domain: str = "gaia.io"
    doubt: str = ""
    unseen: str = ""
    troubles: Mapping[str, str] = field(default_factory=dict)

    def record(self, owner: Owner) -> SlotRecord | None:
        """Return a container's slot."""
        return next((each for each in self.records if (each.owner, each.name) == _pair(owner)), None)

    def states(self, owner: Owner) -> list[CardState]:
        """Return the cards as they are for a container: what is reserved for itself is free to it."""
        held = {Holder(record.owner, record.name): _held(record) for record in self.records}
        others = {holder: parts for holder, parts in self.reserved.items() if holder != _pair(owner)}
        taken = counted(held, others)
        free = {
            card.uuid: card.share - taken.get(card.uuid, NOTHING) - Share(self.foreign.get(card.uuid, 0), 0)
            for card in self.cards
        }
        return [
            CardState(card.uuid, card.name, card.share, free[card.uuid], card.healthy) for card in self.cards
        ]

    def holders(self, card: str, owner: Owner) -> tuple[models.CardHolder, ...]:
        """Return who counts on a card besides a container, the largest first."""
        found = []
        slots = {(record.owner, record.name) for record in self.records}
        for record in self.records:
            part = record.on(card)
            if part is not None and part.held != NOTHING and (record.owner, record.name) != _pair(owner):
                name = f"{record.label}:{record.name}" if record.label else record.slot
                found.append(_holder(name, "slot", part.held, self._used(record.slot, card)))
        for holder, parts in self.reserved.items():
            if card in parts and holder not in slots and holder != _pair(owner):
                title = self.titles.get(holder.uid, holder.uid)
                found.append(_holder(f"{title}:{holder.container}", "reservation", parts[card], 0))
        if units := self.foreign.get(card, 0):
            found.append(_holder(UNMANAGED, "unmanaged", Share(units, 0), units * MEMORY_UNIT))
        return tuple(sorted(found, key=lambda each: (-each.amounts.memory, -each.amounts.cores, each.name)))

    def _used(self, slot: str, card: str) -> int:
        view = self.views.get(slot)
        return 0 if view is None else sum(each.used for each in view.cards if each.uuid == card)


def _pair(owner: Owner) -> tuple[str, str]:
    return owner.uid, owner.container


def _held(record: SlotRecord) -> Parts:
    return {part.card: part.held for part in record.slices}


def _holder(name: str, kind: models.HolderKind, share: Share, used: int) -> models.CardHolder:
    return models.CardHolder(name=name, kind=kind, amounts=amounts(share), used=used)


def explain(pod: Pod, admitted: Mapping[str, Admitted], scene: Scene) -> models.Explained:
    """Tell of a pod what it asks for, what it has, and why it has no more.

    `admitted` is by container.
    """
    both = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    asking = [each for each in both if asks(each, scene.domain)]
    told = [_container(pod, each, admitted.get(each.name, Admitted()), scene) for each in asking]
    return models.Explained(
        pod=pod.title,
        uid=pod.uid,
        node=scene.node,
        phase="Terminating" if pod.terminating else pod.status.phase,
        sentence=_pod_sentence(pod, told, scene),
        containers=tuple(told),
    )


def explain_gone(title: str, scene: Scene) -> models.Explained | None:
    """Tell of a pod that is gone what its slots still hold; None: there are none."""
    left = [record for record in scene.records if record.label == title]
    if not left:
        return None
    told = tuple(_of_slot(record, scene, None) for record in left)
    phase, sentence = "Gone", _GONE
    if scene.unseen:
        phase, sentence = "Unknown", scene.unseen
    return models.Explained(
        pod=title, uid=left[-1].owner, node=scene.node, phase=phase, sentence=sentence, containers=told
    )


def _pod_sentence(pod: Pod, told: Sequence[models.ContainerReason], scene: Scene) -> str:
    before = [each for each in scene.records if each.label == pod.title and each.owner != pod.uid]
    said = []
    if not told:
        said.append("None of its containers asks for a slice.")
    elif scene.doubt and any(each.state != "ended" for each in told):
        said.append(scene.doubt)
    if before:
        held = sum((record.held for record in before), NOTHING)
        said.append(f"An earlier pod of this name still holds {share_text(held)}.")
    return " ".join(said)


def _container(pod: Pod, container: Container, admitted: Admitted, scene: Scene) -> models.ContainerReason:
    owner = Owner(pod.uid, container.name)
    if (record := scene.record(owner)) is not None:
        return _of_slot(record, scene, _said(admitted.refused, scene.now))
    refused = _said(admitted.refused, scene.now)
    if admitted.life is Life.ENDED or pod.terminal:
        return _without(container.name, "ended", "It has ended, and what it had was given back.", refused)
    try:
        wish = wish_of(pod, container.name, domain=scene.domain, card_units=largest_card(scene.cards))
    except Refusal as refusal:
        return _without(container.name, "invalid", refusal.sentence, refused)
    return _waiting(owner, wish, admitted, scene)


def _said(refused: Refused | None, now: float) -> models.LastRefusal | None:
    if refused is None:
        return None
    return models.LastRefusal(
        code=refused.refusal.code.value,
        sentence=refused.refusal.sentence,
        ago=round(now - refused.last, 1),
        since=round(now - refused.first, 1),
    )


def _without(
    container: str, state: models.WaitState, sentence: str, refused: models.LastRefusal | None
) -> models.ContainerReason:
    return models.ContainerReason(
        container=container, state=state, sentence=sentence, asked=None, cards_wanted=0, maximum=None,
        best=None, slot=None, cards=(), refused=refused,
    )  # fmt: skip


# -- without a slot


def _waiting(owner: Owner, wish: Wish, admitted: Admitted, scene: Scene) -> models.ContainerReason:
    request, states = wish.request, scene.states(owner)
    count = cards_wanted(request)
    fits = [card for card in states if accepts(request.models, card.model)] or states
    shares = {card.uuid: normalise(request, card) for card in states}
    each = shares[max(fits, key=lambda card: card.capacity.units).uuid] if fits else NOTHING
    asked = Share(each.units * count, each.cores * count)
    best: models.Amounts | None = amounts(asked)
    try:
        place(request, states, scene.topology)
        sentence = _there_is_room(admitted, scene)
        best = None if scene.doubt else best
        invalid = False
    except Refusal as refusal:
        best = _offer(refusal)
        invalid = refusal.code in (Code.INVALID_AMOUNT, Code.NO_SUCH_CARD)
        sentence = refusal.sentence
        if admitted.left is not None and not invalid:
            sentence += f" Without room the pod is deleted in {max(0.0, admitted.left):.0f} seconds."
    state: models.WaitState = "waiting" if admitted.refused is not None else "pending"
    return models.ContainerReason(
        container=owner.container,
        state="invalid" if invalid else state,
        sentence=sentence,
        asked=amounts(asked),
        cards_wanted=count,
        maximum=amounts(maximum(wish, scene.cards)),
        best=best,
        slot=None,
        cards=tuple(_reason(card, shares[card.uuid], request.models, scene, owner) for card in states),
        refused=_said(admitted.refused, scene.now),
    )


def _there_is_room(admitted: Admitted, scene: Scene) -> str:
    if scene.doubt:
        return "There is room for it here, but nothing starts on this node now."
    if admitted.refused is None:
        return (
            "There is room for it here. The kubelet has not asked for its slice yet: it asks when images are "
            "there and init containers have ended."
        )
    return "There is room for it here now. The kubelet asks again by itself."


def _offer(refusal: Refusal) -> models.Amounts | None:
    if refusal.best_memory is None or refusal.best_cores is None:
        return None
    return models.Amounts(memory=refusal.best_memory, cores=refusal.best_cores)


def _reason(
    card: CardState, wanted: Share, kinds: frozenset[str], scene: Scene, owner: Owner
) -> models.CardReason:
    trouble = ""
    if not card.healthy:
        trouble = scene.troubles.get(card.uuid) or "It is not healthy, or this machine has it no more."
    elif not accepts(kinds, card.model):
        trouble = f"It is a {card.model}, and the pod takes {' or '.join(sorted(kinds))}."
    free = card.free.most(NOTHING)
    index = next(each.index for each in scene.cards if each.uuid == card.uuid)
    return models.CardReason(
        uuid=card.uuid,
        index=index,
        name=card.model,
        total=amounts(card.capacity),
        free=amounts(free),
        lacks=amounts((wanted - free).most(NOTHING)),
        trouble=trouble,
        holders=scene.holders(card.uuid, owner),
    )


# -- with one


def _of_slot(record: SlotRecord, scene: Scene, refused: models.LastRefusal | None) -> models.ContainerReason:
    view = scene.views.get(record.slot)
    state: models.State | models.WaitState = "releasing" if record.releasing else "applied"
    reach = None if view is None else view.could_reach
    if view is not None:
        state = view.state
    return models.ContainerReason(
        container=record.name,
        state="making" if record.reserved else state,
        sentence=_slot_sentence(record, view),
        asked=amounts(record.requested),
        cards_wanted=len(record.slices),
        maximum=amounts(record.maximum),
        best=reach,
        slot=view,
        cards=_slot_cards(record, scene),
        refused=refused,
    )


def _slot_cards(record: SlotRecord, scene: Scene) -> tuple[models.CardReason, ...]:
    """Return the slot's cards; each lacks what keeps the slot from its maximum, evenly divided."""
    owner, count = Owner(record.owner, record.name), len(record.slices)
    states = {card.uuid: card for card in scene.states(owner)}
    most = NOTHING if record.releasing else record.maximum
    each = Share(most.units // count, most.cores // count)
    found = []
    for part in record.slices:
        card = states.get(part.card)
        if card is not None:
            found.append(_reason(card, (each - part.held).most(NOTHING), frozenset(), scene, owner))
    return tuple(found)


def _slot_sentence(record: SlotRecord, view: models.Slot | None) -> str:
    if record.reserved:
        return "Its slice is booked, and is put in force in a moment."
    said = "" if view is None else view.message
    if view is None or record.releasing:
        return said
    reach = Share(view.could_reach.memory // MEMORY_UNIT, view.could_reach.cores)
    said += _wanted(record)
    if record.maximum == record.target:
        return f"{said} That is all that its pod may have."
    if record.maximum.fits(reach):
        return f"{said} It can grow to its maximum, {share_text(record.maximum)}."
    where = "its card has" if len(record.slices) == 1 else "its cards have"
    return f"{said} Its maximum is {share_text(record.maximum)}; {where} room for {share_text(reach)} now."


def _wanted(record: SlotRecord) -> str:
    """Return what became of a size that was asked for by the annotation, where it is not in force."""
    desired = read_desired(record.desired)
    if desired is None or desired.state == "Applied":
        return ""
    return f" The annotation vgpu-desired {desired.text} is {desired.state}: {desired.message}"
