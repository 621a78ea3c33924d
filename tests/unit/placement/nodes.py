"""Nodes to place on: 8 cards of 94 units in a host with plenty, unless said otherwise."""

from __future__ import annotations

from gaia_plugin.gpu import Topology
from gaia_plugin.placement import CardState, Request
from gaia_plugin.placement.cluster import Ask, Fleet, Mix, NodeState, Options
from gaia_plugin.shares import Share
from tests.unit.placement.cards import A100

PLENTY = 1_000_000


def node(
    name: str,
    free: list[tuple[int, int]] | None = None,
    *,
    model: str = A100,
    units: int = 94,
    cpu: int = PLENTY,
    memory: int = PLENTY,
    topology: Topology | None = None,
) -> NodeState:
    """Return a node with a card for each (units, cores) free; eight idle ones, if that is not said."""
    whole = Share(units, 100)
    shares = [Share(*amount) for amount in free] if free is not None else [whole] * 8
    cards = tuple(CardState(f"{name}{i}", model, whole, share) for i, share in enumerate(shares))
    return NodeState(name, cards, cpu, memory, topology or Topology())


def fleet(*nodes: NodeState, mix: dict[Ask, int] | None = None, options: Options | None = None) -> Fleet:
    """Return a fleet of nodes that knows a mix."""
    found = Fleet(options, Mix(mix))
    for each in nodes:
        found.put(each)
    found.renew()
    return found


def ask(
    units: int | None = None,
    cores: int | None = None,
    count: int = 1,
    *,
    models: str = "",
    cpu: int = 0,
    memory: int = 0,
) -> Ask:
    """Return what a pod with one container asks for; nothing of the GPU, if no amount is given."""
    if units is None and cores is None:
        return Ask((), cpu, memory)
    return Ask((Request(units, cores, count, frozenset(models.split())),), cpu, memory)


def order(found: Fleet, wanted: Ask) -> str:
    """Return the names of the nodes that can take an ask, best first, joined."""
    return "".join(chosen.node for chosen in found.ranked(wanted))
