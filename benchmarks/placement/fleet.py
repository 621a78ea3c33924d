"""Time one decision in a cluster of 5,000 nodes of 8 cards: `python benchmarks/placement fleet`.

The pods are those of a production trace (openb), drawn with replacement; each is decided on, booked, and
sometimes an older one leaves. Time is this process's CPU time of a decision: the answer itself, with
what it learns from the request and with the nodes that changed since the last one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator import trace_requests

from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import CardState, Request
from gaia_plugin.placement.cluster import Ask, Chosen, Fleet, NodeState
from gaia_plugin.shares import Share

MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S", "NVIDIA A10")
UNITS = {"NVIDIA A100-SXM4-80GB": 318, "NVIDIA H100 80GB HBM3": 318, "NVIDIA L40S": 178, "NVIDIA A10": 90}


@dataclass
class Spent:
    """CPU milliseconds of each decision."""

    answers: list[float]
    placed: int = 0

    def row(self) -> str:
        """Write the percentiles."""
        cuts = statistics.quantiles(self.answers, n=1000)
        mean, most = statistics.fmean(self.answers), max(self.answers)
        return f"{mean:>8.3f} {cuts[499]:>8.3f} {cuts[989]:>8.3f} {most:>8.1f}"


def build(nodes: int, cards: int, dice: random.Random) -> list[NodeState]:
    """Return idle nodes of four models, in hosts of two sizes, NVLink within each four cards."""
    found = []
    for number in range(nodes):
        model = dice.choice(MODELS)
        whole = Share(UNITS[model], 100)
        uuids = [f"GPU-{number:05}-{card}" for card in range(cards)]
        ties = [
            (a, b, Tie(Level.NVLINK, 2) if i // 4 == j // 4 else Tie(Level.NUMA))
            for i, a in enumerate(uuids)
            for j, b in enumerate(uuids)
            if i < j
        ]
        states = tuple(CardState(uuid, model, whole, whole) for uuid in uuids)
        cpu, memory = dice.choice(((96_000, 786_432), (128_000, 1_048_576)))
        found.append(NodeState(f"node-{number:05}", states, cpu, memory, Topology.of(ties)))
    return found


def asks(data: Path, dice: random.Random, count: int) -> list[Ask]:
    """Return what pods of the trace would ask for: memory and cores drawn apart for half of them."""
    found = []
    for request in dice.choices(trace_requests(data, "default"), k=count):
        if not request.gpus:
            continue
        if request.gpus > 1 or request.gpu_milli == 1000:
            slices = Request(None, 100 * request.gpus)
        else:
            units = max(1, 318 * request.gpu_milli // 1000 // 8 * 4)
            cores = request.gpu_milli // 10 if dice.random() < 0.5 else dice.choice((10, 20, 30, 50))
            slices = Request(units, max(1, cores))
        found.append(Ask((slices,), request.cpu, request.memory))
    return found


def booked(node: NodeState, ask: Ask, chosen: Chosen, sign: int) -> NodeState:
    """Return a node after a pod came (sign 1) or left (-1)."""
    taken = {one.card: one.share for slices in chosen.slices for one in slices}
    cards = tuple(
        replace(c, free=c.free - taken[c.uuid] if sign > 0 else c.free + taken[c.uuid])
        if c.uuid in taken
        else c
        for c in node.cards
    )
    return replace(node, cards=cards, cpu=node.cpu - sign * ask.cpu, memory=node.memory - sign * ask.memory)


def measure(nodes: int, cards: int, pods: int, data: Path, leaving: float) -> Spent:
    """Run pods through a fleet; each is decided on once."""
    dice = random.Random(7)
    state = {node.name: node for node in build(nodes, cards, dice)}
    fleet = Fleet()
    for node in state.values():
        fleet.put(node)
    fleet.renew()
    spent, running = Spent([]), []
    for ask in asks(data, dice, pods):
        began = time.process_time_ns()
        fleet.learn(ask)
        chosen = fleet.choose(ask)
        spent.answers.append((time.process_time_ns() - began) / 1e6)
        if chosen is not None:
            spent.placed += 1
            running.append((ask, chosen))
            state[chosen.node] = booked(state[chosen.node], ask, chosen, 1)
            fleet.put(state[chosen.node])
        if running and dice.random() < leaving:
            old, where = running.pop(dice.randrange(len(running)))
            state[where.node] = booked(state[where.node], old, where, -1)
            fleet.put(state[where.node])
    return spent


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--pods", type=int, default=25_000)
    options = parser.parse_args(arguments)
    print(f"{'nodes':>6} {'cards':>5} {'placed':>7} {'mean ms':>8} {'p50':>8} {'p99':>8} {'max':>8}")
    for nodes in (100, 1000, 5000):
        spent = measure(nodes, 8, options.pods, options.shared / "data/openb", 0.2)
        print(f"{nodes:>6} {8:>5} {spent.placed:>7} {spent.row()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
