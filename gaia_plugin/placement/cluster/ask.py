"""The values placement in a cluster works on: what a pod asks of a node, a node, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from gaia_plugin.gpu.topology import Topology
from gaia_plugin.placement.model import CardState, Request, Slice


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod asks of a node; equal asks are interchangeable.

    Args:
        requests: one for each container that asks for a slice; empty: the pod takes no GPU.
        cpu: of the host, in thousandths of a core.
        memory: of the host, in MiB.
    """

    requests: tuple[Request, ...] = ()
    cpu: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as placement sees it. A node that takes nothing new is left out of the fleet instead.

    Args:
        name: decides between equals.
        cards: what is free on each is capacity less what is held, draining, reserved, or of a pod that
            is terminating (`gaia_plugin.counted`).
        cpu: free, in thousandths of a core.
        memory: free, in MiB.
        topology: the ties between its cards.
    """

    name: str
    cards: tuple[CardState, ...]
    cpu: int
    memory: int
    topology: Topology = field(default_factory=Topology)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A node, and the slices there: one group for each request of the ask, in its order."""

    node: str
    slices: tuple[tuple[Slice, ...], ...] = ()
