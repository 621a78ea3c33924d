"""Why nodes are refused, in sentences that people read on a spawn page and in the events of a pod. Pure.

kube-scheduler counts nodes with equal words together ("2 no card has ..., 1 ..."), so a sentence says the
same of all nodes of its group, and is written to stand behind their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gaia_plugin.extender.demand import Kind
from gaia_plugin.extender.node import Node
from gaia_plugin.extender.why import Why
from gaia_plugin.placement import CardState, Request, accepts, cards_wanted, largest_free
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD, MEMORY_UNIT, format_cores, format_memory

NO_AGENT: Final = "node(s) without Gaia: no agent has reported a GPU there."
SILENT: Final = "node(s) whose Gaia agent has stopped reporting; running work goes on, nothing new is placed."
NOT_READY: Final = "node(s) whose Gaia agent does not take pods at the moment."
NO_CARD: Final = "node(s) without a healthy GPU."
_MOST_MODELS: Final = 6


def share_text(share: Share) -> str:
    """Write a share for people: ``8 GiB and 34 % compute``."""
    memory = format_memory(max(0, share.units) * MEMORY_UNIT)
    return f"{memory} and {format_cores(max(0, share.cores))} compute"


def asked(request: Request) -> str:
    """Write what a container asks for."""
    cards = cards_wanted(request)
    where = "one card" if cards == 1 else f"{cards} cards"
    if request.memory_units is None:
        return "1 whole card" if cards == 1 else f"{cards} whole cards"
    memory = format_memory(request.memory_units * MEMORY_UNIT)
    if request.cores is None:
        return f"{memory} of {where}"
    return f"{memory} and {format_cores(request.cores)} compute of {where}"


def wanted(kind: Kind) -> str:
    """Write what a pod asks for."""
    models = sorted({name for request in kind for name in request.models})
    of = f" ({' or '.join(models[:_MOST_MODELS])})" if models else ""
    return " and ".join(asked(request) for request in kind) + of


def sentence(why: Why, kind: Kind, nodes: Sequence[Node]) -> str:
    """Return what is said of each node of a group that is refused for one reason."""
    match why:
        case Why.NO_CARD:
            return NO_CARD
        case Why.MODEL:
            return f"node(s) without the GPU model asked for: {wanted(kind)}; there is {_models(nodes)}."
        case Why.TOO_FEW:
            most = max(len(_fitting(node, kind)) for node in nodes)
            return f"node(s) with too few GPUs: {wanted(kind)} asked for, at most {most} there."
        case Why.TOO_SMALL:
            most = max((card.capacity.units for node in nodes for card in _fitting(node, kind)), default=0)
            return (
                f"node(s) with GPUs too small: {wanted(kind)} asked for, the largest has "
                f"{format_memory(most * MEMORY_UNIT)}."
            )
        case Why.FULL:
            return f"node(s) with GPUs too full now: {wanted(kind)} asked for, {_free(kind, nodes)}."


def _free(kind: Kind, nodes: Sequence[Node]) -> str:
    """Say what there is instead: the largest slice, or how many whole cards of one node."""
    models = kind[0].models
    if _whole(kind[0]):
        idle = max(
            sum(card.healthy and card.idle for card in _fitting(node, kind)) if models else node.idle
            for node in nodes
        )
        if idle:
            return f"at most {idle} whole {'card is' if idle == 1 else 'cards are'} free on one node"
    if not models:
        # thousands of nodes: their own largest is known
        _, units, cores = max(node.largest for node in nodes)
        largest = Share(units, cores) if units else None
    else:
        largest = largest_free(card for node in nodes for card in _fitting(node, kind))
    return f"the largest free slice is {share_text(largest)}" if largest else "nothing is free"


def _whole(request: Request) -> bool:
    return request.cores is not None and request.cores >= CORES_PER_CARD * cards_wanted(request)


def _fitting(node: Node, kind: Kind) -> list[CardState]:
    models = kind[0].models
    if not models:
        return list(node.cards)
    return [card for card in node.cards if accepts(models, card.model)]


def _models(nodes: Iterable[Node]) -> str:
    names = sorted({card.model for node in nodes for card in node.cards})
    more = f" and {len(names) - _MOST_MODELS} more" if len(names) > _MOST_MODELS else ""
    return ", ".join(names[:_MOST_MODELS]) + more
