"""Memory and compute that are asked for apart: `python benchmarks/placement apart`.

The trace has one number for a part of a GPU. Here it is the compute, and the memory of each part is drawn
from the same numbers on its own, so that a card can run out of either. The rest is as in `filling`:
cluster, CPU and host memory, order of arrival, nothing departs. Printed is the share of compute and of
memory in use once the pods that came ask for all the compute there is.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator import load, trace_requests

from gaia_plugin.placement import CardState, Request
from gaia_plugin.placement.cluster import Ask, Chosen, Fleet, NodeState, Options, Rule
from gaia_plugin.shares import NOTHING, Share

WHOLE = Share(100, 100)


def cluster(nodes: Sequence[Any]) -> dict[str, NodeState]:
    """Return the trace's nodes, idle."""
    return {
        each.name: NodeState(
            each.name,
            tuple(CardState(f"{each.name}-{i}", each.model, WHOLE, WHOLE) for i in range(each.gpus)),
            each.cpu,
            each.memory,
        )
        for each in nodes
    }


def ask_of(request: Any, parts: Sequence[int], dice: random.Random) -> Ask:
    """Return what a pod asks for; the memory of a part of a GPU is any of `parts`."""
    if not request.gpus:
        return Ask((), request.cpu, request.memory)
    cores = -(-request.gpu_milli // 10) * request.gpus
    memory = cores if request.gpus > 1 or cores == 100 else dice.choice(parts)
    return Ask((Request(memory, cores, request.gpus, request.models),), request.cpu, request.memory)


def book(node: NodeState, ask: Ask, chosen: Chosen) -> NodeState:
    """Return a node with a pod on it."""
    part = {one.card: one.share for slices in chosen.slices for one in slices}
    cards = tuple(replace(card, free=card.free - part.get(card.uuid, NOTHING)) for card in node.cards)
    return replace(node, cards=cards, cpu=node.cpu - ask.cpu, memory=node.memory - ask.memory)


def fill(options: Options, nodes: Sequence[Any], workload: Sequence[Any], seed: int) -> tuple[float, float]:
    """Return percent of compute and of memory in use at the end."""
    from placement.simulate import arrivals

    dice = random.Random(f"memory {seed}")
    state, fleet = cluster(nodes), Fleet(options)
    for node in state.values():
        fleet.put(node)
    fleet.renew()
    parts = [-(-r.gpu_milli // 10) for r in workload if r.shares_gpu and r.gpu_milli]
    capacity = 1000 * sum(node.gpus for node in nodes)
    for request in arrivals(workload, capacity, 1.0, random.Random(seed)):
        ask = ask_of(request, parts, dice)
        fleet.learn(ask)
        chosen = fleet.choose(ask)
        if chosen is not None:
            state[chosen.node] = book(state[chosen.node], ask, chosen)
            fleet.put(state[chosen.node])
    cards = [card.free for node in state.values() for card in node.cards]
    return (
        100 - sum(free.cores for free in cards) / len(cards),
        100 - sum(free.units for free in cards) / len(cards),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--trace", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=200)
    options = parser.parse_args(arguments)
    load(options.shared)
    from placement.openb import read_nodes

    data = options.shared / "data/openb"
    nodes = read_nodes(data / "openb_node_list_gpu_node.csv")
    print("| trace | rule | compute@100 | memory@100 |\n|---|---|---|---|")
    for trace in options.trace or ("default", "gpushare100"):
        workload = trace_requests(data, trace)
        for rule in Rule:
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            found = [fill(Options(rule=rule), nodes, workload, seed) for seed in seeds]
            cells = [f"{statistics.fmean(column):.2f}" for column in zip(*found, strict=True)]
            print(f"| {trace} | {rule} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
