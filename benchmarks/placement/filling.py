"""How much of a cluster's GPU is handed out: `python benchmarks/placement filling`.

The protocol of Weng et al. (USENIX ATC 2023): the pods of a production trace (openb: 1,213 nodes, 6,212
GPUs) in a random order, then drawn from it with replacement, until they ask for 130 % of the GPU; nothing
departs, what does not fit is dropped. `alloc@100` is the share of all GPU in use once the pods that came
ask for all of it. `lost` is the share of the GPU asked for in sets of several that was dropped by then.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator import load, trace_requests

TRACES = (
    "default",
    "gpushare20",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec33",
    "multigpu20",
    "multigpu50",
)
OURS = "gaia_plugin.placement.bench:make_policy"
MARKS = (100, 130)


@dataclass
class Run:
    """What one seed gave."""

    allocated: dict[int, float] = field(default_factory=dict)
    lost: float = 0.0
    seconds: list[float] = field(default_factory=list)


def fill(policy_name: str, nodes: list[Any], workload: list[Any], seed: int) -> Run:
    """Fill the cluster once."""
    from placement.cluster import Cluster
    from placement.fragmentation import Fragmentation
    from placement.policies import Setting
    from placement.simulate import arrivals, find_policy

    cluster = Cluster(nodes)
    fragmentation = Fragmentation(cluster, workload)
    policy = find_policy(policy_name)(Setting(cluster, fragmentation, random.Random(f"policy {seed}")))
    run, marks, asked = Run(), list(MARKS), 0
    of_sets = lost = 0
    capacity = cluster.total_gpu_milli

    def note() -> None:
        run.allocated[marks.pop(0)] = 100 * cluster.allocated_gpu_milli / capacity
        if len(run.allocated) == 1:
            run.lost = 100 * lost / of_sets if of_sets else 0.0

    for request in arrivals(workload, capacity, MARKS[-1] / 100, random.Random(seed)):
        while marks and asked + request.total_gpu_milli > marks[0] * capacity / 100:
            note()
        asked += request.total_gpu_milli
        began = time.process_time()
        placed = policy.choose(request)
        run.seconds.append(time.process_time() - began)
        if placed is not None:
            cluster.place(request, placed)
        if request.gpus > 1:
            of_sets += request.total_gpu_milli
            lost += request.total_gpu_milli if placed is None else 0
    while marks:
        note()
    return run


def row(trace: str, policy: str, runs: Sequence[Run]) -> str:
    """Write a line of the table."""

    def spread(values: Sequence[float]) -> str:
        return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0:.2f}"

    spent = sorted(second for run in runs for second in run.seconds)
    name = "ours" if policy == OURS else policy
    cells = [spread([run.allocated[mark] for run in runs]) for mark in MARKS]
    cells.append(f"{statistics.fmean(run.lost for run in runs):.1f} %")
    cells += [f"{1e6 * spent[len(spent) * part // 100]:.0f}" for part in (50, 99)]
    return f"| {trace} | {name} | {' | '.join(cells)} |"


def rows(options: argparse.Namespace) -> Iterator[str]:
    """Go through traces and policies."""
    load(options.shared)
    from placement.openb import read_nodes

    data = options.shared / "data/openb"
    nodes = read_nodes(data / "openb_node_list_gpu_node.csv")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for trace in options.trace or TRACES:
        workload = trace_requests(data, trace)
        for policy in options.policy or (OURS, "fgd-best-fit", "best-fit"):
            yield row(trace, policy, [fill(policy, nodes, workload, seed) for seed in seeds])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[3] / "shared")
    parser.add_argument("--trace", action="append", choices=TRACES, help="may be given again")
    parser.add_argument("--policy", action="append", help="of the simulator, or module:factory")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=200)
    print("| trace | policy | alloc@100 | alloc@130 | lost of several | p50 us | p99 us |")
    print("|---|---|---|---|---|---|---|")
    for line in rows(parser.parse_args(arguments)):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
