"""Our placement as a policy of the placement simulator."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gaia_plugin.placement import Request
from gaia_plugin.placement.bench import Policy, ask_of, make_given, make_policy
from gaia_plugin.placement.cluster import Ask


@dataclass(frozen=True)
class Pod:
    """A pod of a trace."""

    cpu: int
    memory: int
    gpus: int
    gpu_milli: int
    models: frozenset[str] = field(default_factory=frozenset)


class Trace:
    """A simulated cluster of three nodes with 2, 1 and no GPUs."""

    def __init__(self) -> None:
        self.nodes = [SimpleNamespace(gpus=2, model="T4"), SimpleNamespace(gpus=1, model="G2")]
        self.nodes.append(SimpleNamespace(gpus=0, model=""))
        self.cpu = np.array([4000, 4000, 9000], np.int32)
        self.memory = np.array([1024, 1024, 1024], np.int32)
        self.gpu = np.array([[1000, 1000], [1000, 0], [0, 0]], np.int32)
        self.changes: list[int] = []

    def place(self, pod: Pod, placed: Any, sign: int = 1) -> None:
        self.cpu[placed.node] -= sign * pod.cpu
        self.memory[placed.node] -= sign * pod.memory
        for gpu in placed.gpus:
            self.gpu[placed.node, gpu] -= sign * pod.gpu_milli
        self.changes.append(placed.node)


@pytest.mark.parametrize(
    ("pod", "ask"),
    [
        (Pod(1, 2, 0, 0), Ask((), 1, 2)),
        (Pod(1, 2, 1, 460), Ask((Request(46, 46),), 1, 2)),
        (Pod(1, 2, 1, 461), Ask((Request(47, 47),), 1, 2)),
        (Pod(1, 2, 4, 1000), Ask((Request(400, 400, 4),), 1, 2)),
        (Pod(1, 2, 1, 1000, frozenset({"T4"})), Ask((Request(100, 100, 1, frozenset({"T4"})),), 1, 2)),
    ],
)
def test_a_part_of_a_gpu_is_as_much_memory_as_compute(pod: Pod, ask: Ask) -> None:
    assert ask_of(pod) == ask


def policies() -> list[tuple[Trace, Policy]]:
    """Return a policy that learns and one that is told the mix, each with its cluster."""
    learns, told = Trace(), Trace()
    given = make_given({Pod(1, 1, 1, 500): 3})
    return [
        (learns, make_policy(SimpleNamespace(cluster=learns))),
        (told, given(SimpleNamespace(cluster=told))),
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_it_follows_the_cluster_it_is_asked_about(which: int) -> None:
    trace, policy = policies()[which]
    half, pair, cpu = Pod(500, 100, 1, 500), Pod(500, 100, 2, 1000), Pod(8000, 100, 0, 0)
    first = policy.choose(half)
    assert first is not None
    trace.place(half, first)
    assert policy.choose(half) == first
    trace.place(half, first, -1)
    policy.ended()
    placed = policy.choose(pair)
    assert placed is not None
    assert (placed.node, placed.gpus) == (0, (0, 1))
    trace.place(pair, placed)
    assert policy.choose(pair) is None
    assert policy.choose(Pod(1, 1, 1, 10, frozenset({"T4"}))) is None
    host = policy.choose(cpu)
    assert host is not None
    assert (host.node, host.gpus) == (2, ())
