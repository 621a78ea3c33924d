"""The same cluster with pods that leave again: `python benchmarks/placement departures`.

Pods of the trace come at random (exponential times between them) and stay as long as they did in the
trace; so many come that they would keep `--load` of the GPU in use if all of them fitted. What does not
fit is dropped. Measured over time: the share of GPU in use, and the share of the GPU time asked for that
was dropped, in all and in sets of several GPUs.

Stays run from seconds to months: half are below a fiftieth of the mean. A run from empty would take
millions of pods to settle, so it begins with what would be there: pods drawn in proportion to their stay,
each somewhere in the middle of it. The first half of what comes then is not measured.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filling import OURS
from simulator import load, trace_requests


@dataclass
class Outcome:
    """Percent, over the measured part of a run."""

    used: float
    dropped: float
    dropped_sets: float


def stays(data: Path, trace: str, longest: float) -> list[float]:
    """Return how long each pod of a trace ran, in means of all."""
    with (data / f"openb_pod_list_{trace}.csv").open(newline="") as lines:
        times = [
            max(1.0, float(line["deletion_time"]) - float(line["scheduled_time"] or line["creation_time"]))
            for line in csv.DictReader(lines)
        ]
    mean = statistics.fmean(times)
    return [min(time / mean, longest) for time in times]


def leave(cluster: Any, request: Any, placed: Any) -> None:
    """Give back what a pod had."""
    cluster.cpu[placed.node] += request.cpu
    cluster.memory[placed.node] += request.memory
    for gpu in placed.gpus:
        cluster.gpu[placed.node, gpu] += request.gpu_milli
    cluster.changes.append(placed.node)


def settled(
    pods: Sequence[tuple[Any, float]], amount: float, dice: random.Random
) -> Iterator[tuple[Any, float]]:
    """Draw the pods that are there at some moment, asking for that much GPU, and how long they still stay."""
    weights = [stay for _, stay in pods]
    while amount > 0:
        for request, stay in dice.choices(pods, weights, k=100):
            if amount > 0:
                amount -= request.total_gpu_milli
                yield request, dice.uniform(0, stay)


def simulate(
    policy_name: str, nodes: list[Any], pods: Sequence[tuple[Any, float]], options: Any, seed: int
) -> Outcome:
    """Run until as many pods came as `options.pods` says."""
    from placement.cluster import Cluster
    from placement.fragmentation import Fragmentation
    from placement.policies import Setting
    from placement.simulate import find_policy

    cluster = Cluster(nodes)
    fragmentation = Fragmentation(cluster, [request for request, _ in pods])
    policy = find_policy(policy_name)(Setting(cluster, fragmentation, random.Random(f"policy {seed}")))
    dice = random.Random(seed)
    ends: list[tuple[float, int, Any, Any]] = []

    def come(request: Any, end: float) -> bool:
        placed = policy.choose(request)
        if placed is not None:
            cluster.place(request, placed)
            heapq.heappush(ends, (end, len(cluster.changes), request, placed))
        return placed is not None

    for request, end in settled(pods, options.load * cluster.total_gpu_milli, dice):
        come(request, end)
    work = statistics.fmean(request.total_gpu_milli * stay for request, stay in pods)
    rate = options.load * cluster.total_gpu_milli / work
    now = began = used = asked = dropped = asked_sets = dropped_sets = 0.0
    for number in range(options.pods):
        if number == options.pods // 2:
            began, used, asked, dropped, asked_sets, dropped_sets = now, 0.0, 0.0, 0.0, 0.0, 0.0
        coming = now + dice.expovariate(rate)
        while ends and ends[0][0] <= coming:
            end, _, request, placed = heapq.heappop(ends)
            used += (end - now) * cluster.allocated_gpu_milli
            now = end
            leave(cluster, request, placed)
            if hasattr(policy, "ended"):
                policy.ended()
        used += (coming - now) * cluster.allocated_gpu_milli
        now = coming
        request, stay = pods[dice.randrange(len(pods))]
        amount = request.total_gpu_milli * stay
        asked, asked_sets = asked + amount, asked_sets + amount * (request.gpus > 1)
        if not come(request, now + stay):
            dropped, dropped_sets = dropped + amount, dropped_sets + amount * (request.gpus > 1)
    return Outcome(
        100 * used / (now - began) / cluster.total_gpu_milli,
        100 * dropped / asked,
        100 * dropped_sets / asked_sets if asked_sets else 0.0,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--trace", action="append", choices=("default", "gpuspec33"))
    parser.add_argument("--policy", action="append", help="of the simulator, or module:factory")
    parser.add_argument("--load", type=float, default=1.0, help="GPU asked for, times what there is")
    parser.add_argument("--longest", type=float, default=10.0, help="longest stay, in means")
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=200)
    options = parser.parse_args(arguments)
    load(options.shared)
    from placement.openb import read_nodes

    data = options.shared / "data/openb"
    nodes = read_nodes(data / "openb_node_list_gpu_node.csv")
    print(f"| trace, load {options.load:.0%} | policy | GPU in use | dropped | dropped of several |")
    print("|---|---|---|---|---|")
    for trace in options.trace or ("default", "gpuspec33"):
        pods = list(zip(trace_requests(data, trace), stays(data, trace, options.longest), strict=True))
        for policy in options.policy or (OURS, "fgd-best-fit", "best-fit"):
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            found = [simulate(policy, nodes, pods, options, seed) for seed in seeds]
            used = [one.used for one in found]
            deviation = statistics.stdev(used) if len(used) > 1 else 0.0
            cells = (
                f"{statistics.fmean(used):.2f} ± {deviation:.2f} %",
                f"{statistics.fmean(one.dropped for one in found):.2f} %",
                f"{statistics.fmean(one.dropped_sets for one in found):.2f} %",
            )
            print(f"| {trace} | {'ours' if policy == OURS else policy} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
