"""The placement annotation: which cards were chosen for a pod's containers. Pure.

Whoever may patch a pod may write it, so it is a hint and never a grant: what is forged, left over from
another pod, made for another node or not what the pod asks for is ignored, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from gaia_plugin.errors import Refusal
from gaia_plugin.kube.pods import DOMAIN, Pod
from gaia_plugin.placement import CardState, Request, Slice, accepts, cards_wanted, normalise
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD, LARGEST_MEMORY, MEMORY_UNIT

_LONGEST: Final = 64 << 10
"""Bytes of an annotation that is looked at; 64 containers on 16 cards each need less."""


def placement_key(domain: str = DOMAIN) -> str:
    """Return the annotation's name."""
    return f"{domain}/placement"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the containers of a pod were placed; slices in the order of their cards' UUIDs."""

    uid: str
    node: str
    containers: Mapping[str, tuple[Slice, ...]]


@dataclass(frozen=True, slots=True)
class Ignored:
    """Why an annotation counts for nothing; None where there is none at all."""

    reason: str | None


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Units = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_MEMORY // MEMORY_UNIT)]
_Cores = Annotated[int, msgspec.Meta(ge=1, le=CORES_PER_CARD)]
_Cards = Annotated[dict[_Name, tuple[_Units, _Cores]], msgspec.Meta(min_length=1, max_length=16)]
_Containers = Annotated[dict[_Name, _Cards], msgspec.Meta(min_length=1, max_length=64)]


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uid: _Name
    node: _Name
    containers: _Containers


_DECODER: Final = msgspec.json.Decoder(_Wire)


def render(placement: Placement) -> str:
    """Write a placement as the annotation's text; equal placements give equal text."""
    containers = {
        name: {part.card: (part.share.units, part.share.cores) for part in slices}
        for name, slices in placement.containers.items()
    }
    wire = _Wire(placement.uid, placement.node, containers)
    return msgspec.json.encode(wire, order="sorted").decode()


def parse(text: str) -> Placement | Ignored:
    """Read an annotation's text, whatever it is; what it says is not compared with anything yet."""
    try:
        wire = _DECODER.decode(text) if len(text) <= _LONGEST else None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Ignored(f"it is not what Gaia writes: {str(error)[:200]}")
    if wire is None:
        return Ignored(f"it is longer than {_LONGEST} bytes.")
    containers = {
        name: tuple(Slice(card, Share(*cards[card])) for card in sorted(cards))
        for name, cards in wire.containers.items()
    }
    return Placement(wire.uid, wire.node, containers)


def placed(
    pod: Pod,
    container: str,
    request: Request,
    cards: Sequence[CardState],
    *,
    node: str,
    domain: str = DOMAIN,
) -> tuple[Slice, ...] | Ignored:
    """Return the slices that a pod's annotation gives to a container, if they may be believed.

    They are for this pod and this node, on cards that the node has and the pod takes, each with exactly
    the share that `request` comes to there. Whether that is free is not looked at.
    """
    text = pod.annotations.get(placement_key(domain))
    if text is None:
        return Ignored(None)
    placement = parse(text)
    if isinstance(placement, Ignored):
        return placement
    if placement.uid != pod.uid:
        return Ignored("it was made for another pod.")
    if placement.node != node:
        return Ignored(f"it was made for node {placement.node[:63]}, and this is {node}.")
    slices = placement.containers.get(container)
    if slices is None:
        return Ignored("it says nothing of this container.")
    wrong = _not_as_asked(slices, request, cards)
    return slices if wrong is None else Ignored(wrong)


def _not_as_asked(slices: tuple[Slice, ...], request: Request, cards: Sequence[CardState]) -> str | None:
    known = {card.uuid: card for card in cards}
    for part in slices:
        card = known.get(part.card)
        if card is None:
            return f"this node has no card {part.card[:63]}."
        if not accepts(request.models, card.model):
            return f"card {part.card} is of a model that the pod does not take."
        try:
            share = normalise(request, card)
        except Refusal as refusal:
            return refusal.sentence
        if part.share != share:
            return (
                f"on card {part.card} it gives {part.share.units} units and {part.share.cores} cores; "
                f"the pod asks for {share.units} and {share.cores}."
            )
    wanted = cards_wanted(request)
    return None if len(slices) == wanted else f"it names {len(slices)} cards; the pod asks for {wanted}."
