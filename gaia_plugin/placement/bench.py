"""Our placement as a policy of the placement simulator: ``gaia_plugin.placement.bench:make_policy``.

The simulator gives cluster and requests in the units of its trace: GPU and CPU in thousandths, memory in
MiB. A GPU of the trace is a card of 100 units here, so that a part of it is as much memory as compute.
The protocols say what is used of the simulator's objects; nothing of it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gaia_plugin.placement.cluster import Ask, Fleet, Mix, NodeState, Options
from gaia_plugin.placement.model import CardState, Request
from gaia_plugin.shares import Share
from gaia_plugin.units import CORES_PER_CARD

_MILLI_OF_A_PERCENT: Final = 10
_WHOLE: Final = Share(CORES_PER_CARD, CORES_PER_CARD)


class TraceNode(Protocol):
    """A node of the trace."""

    gpus: int
    model: str


class TraceRequest(Protocol):
    """A pod of the trace; hashable."""

    cpu: int
    memory: int
    gpus: int
    gpu_milli: int
    models: frozenset[str]


class TraceCluster(Protocol):
    """The simulated cluster: arrays over nodes, and a log of the nodes touched."""

    nodes: Sequence[TraceNode]
    cpu: Any
    memory: Any
    gpu: Any
    changes: list[int]


class Setting(Protocol):
    """What a policy is made with."""

    cluster: TraceCluster


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a pod goes, as the simulator has it: the index of the node and those of its GPUs."""

    node: int
    gpus: tuple[int, ...]


def make_policy(setting: Setting) -> Policy:
    """Return our policy for a simulated cluster; it learns the mix from the requests it sees."""
    return Policy(setting.cluster, Fleet())


def make_given(asks: Mapping[Any, int], options: Options | None = None) -> Callable[[Setting], Policy]:
    """Return a maker of policies that know the mix beforehand."""
    seen = {ask_of(request): times for request, times in asks.items()}
    return lambda setting: Policy(setting.cluster, Fleet(options, Mix(seen)), learns=False)


def ask_of(request: TraceRequest) -> Ask:
    """Return what a pod of the trace asks for in our terms."""
    if not request.gpus:
        return Ask((), request.cpu, request.memory)
    percent = -(-request.gpu_milli // _MILLI_OF_A_PERCENT) * request.gpus
    return Ask((Request(percent, percent, request.gpus, request.models),), request.cpu, request.memory)


class Policy:
    """Keeps a fleet equal to the simulated cluster, and asks it."""

    def __init__(self, cluster: TraceCluster, fleet: Fleet, *, learns: bool = True) -> None:
        self.fleet = fleet
        self._cluster = cluster
        self._learns = learns
        self._asks: dict[TraceRequest, Ask] = {}
        self._cards = [
            [f"{node:06}-{gpu:02}" for gpu in range(known.gpus)] for node, known in enumerate(cluster.nodes)
        ]
        for node in range(len(cluster.nodes)):
            self._put(node)
        self._seen = len(cluster.changes)
        self.fleet.renew()

    def choose(self, request: TraceRequest) -> Placed | None:
        """Return where a request goes, or None."""
        for node in set(self._cluster.changes[self._seen :]):
            self._put(node)
        self._seen = len(self._cluster.changes)
        ask = self._asks.get(request) or self._asks.setdefault(request, ask_of(request))
        if self._learns:
            self.fleet.learn(ask)
        chosen = self.fleet.choose(ask)
        if chosen is None:
            return None
        cards = [one.card for slices in chosen.slices for one in slices]
        return Placed(int(chosen.node), tuple(int(card.rpartition("-")[2]) for card in cards))

    def ended(self) -> None:
        """Count a pod that has left."""
        if self._learns:
            self.fleet.ended()

    def _put(self, node: int) -> None:
        cluster, known = self._cluster, self._cluster.nodes[node]
        free = [int(milli) // _MILLI_OF_A_PERCENT for milli in cluster.gpu[node]]
        cards = tuple(
            CardState(uuid, known.model, _WHOLE, Share(percent, percent))
            for uuid, percent in zip(self._cards[node], free, strict=False)
        )
        self.fleet.put(NodeState(f"{node:06}", cards, int(cluster.cpu[node]), int(cluster.memory[node])))
