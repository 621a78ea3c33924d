"""What a pod asks for, all its containers together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gaia_plugin.errors import Refusal
from gaia_plugin.kube.pods import DOMAIN, Pod, asks, holders, is_sidecar
from gaia_plugin.kube.wishes import wish_of
from gaia_plugin.placement import Request, cards_wanted

MOST_CONTAINERS: Final = 64
"""Containers with a slice in one pod; as many as a placement annotation has room for."""

Kind = tuple[Request, ...]
"""What pods have in common that fit in the same places: their requests, the largest first."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for: a request for each container that gets a slice, the largest first.

    The largest is placed first because the small ones find a place beside it more easily than it beside
    them. A pod that asks for no slice has no containers here.
    """

    uid: str
    title: str
    containers: tuple[str, ...] = ()
    kind: Kind = ()


def demand_of(pod: Pod, domain: str = DOMAIN) -> Demand:
    """Return what a pod asks for.

    Raises:
        Refusal: one of its containers asks for what no card of any size could give; says what to write.
    """
    for init in pod.spec.init_containers or ():
        if not is_sidecar(init) and asks(init, domain):
            wish_of(pod, init.name, domain=domain)  # refuses with the sentence for a plain init container
    asked = [(wish_of(pod, each.name, domain=domain).request, each.name) for each in holders(pod, domain)]
    asked.sort(key=lambda pair: (_size(pair[0]), pair[1]))
    return Demand(
        pod.uid,
        pod.title,
        tuple(name for _, name in asked),
        tuple(request for request, _ in asked),
    )


def demand_or_refusal(pod: Pod, domain: str = DOMAIN) -> Demand | Refusal:
    """Return what a pod asks for, or why that means nothing."""
    try:
        return demand_of(pod, domain)
    except Refusal as refusal:
        return refusal


def _size(request: Request) -> tuple[int, int, int]:
    """Return a key by which larger requests come first."""
    return (-cards_wanted(request), -(request.cores or 0), -(request.memory_units or 0))
