"""Time the extender: filter and bind, pod after pod as kube-scheduler asks, in clusters of several sizes.

    python benchmarks/extender.py
    python benchmarks/extender.py --nodes 5000 --requests 2000

Three processes: an API server that answers from memory and sends each node's heartbeat twice a minute, the
extender as it is deployed, and this one, which offers all nodes by name for one pending pod after another.
What is printed are wall times as the caller sees them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.large_cluster.synthetic import UNITS, Cluster, node_name, objects

SIZES = (100, 1_000, 5_000)


@contextmanager
def process(arguments: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program for the time of a block."""
    running = subprocess.Popen(arguments, text=True, **more)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def free_port() -> int:
    """Return a port that nobody has now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(connection: http.client.HTTPConnection, verb: str, body: bytes) -> tuple[Any, float]:
    """Send one question; return the answer and the milliseconds."""
    begun = time.perf_counter()
    connection.request("POST", f"/scheduler/{verb}", body, {"Content-Type": "application/json"})
    answer = connection.getresponse().read()
    return json.loads(answer), 1e3 * (time.perf_counter() - begun)


def until_there(port: int, path: str, seconds: float = 120) -> None:
    """Wait until a server answers 200."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"nothing answers on port {port}")
        time.sleep(0.02)


def resident(pid: int, what: str = "VmRSS") -> float:
    """Return a process's resident memory in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else 0.0


def processor(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantiles(values: list[float]) -> str:
    """Return p50 and p99."""
    if not values:
        return "-"
    ordered, last = sorted(values), len(values) - 1
    return f"{ordered[len(ordered) // 2]:.2f} / {ordered[min(last, last * 99 // 100 + 1)]:.2f}"


def measure(nodes: int, pods: int, requests: int) -> None:
    """Print the row of one size."""
    cluster = Cluster(nodes, pods, requests)
    names = [node_name(index) for index in range(nodes)]
    api, port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as scratch:
        kubeconfig = Path(scratch) / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "a",
                    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                    "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{api}"}}],
                    "users": [{"name": "a", "user": {}}],
                }
            )
        )  # fmt: skip
        again = [sys.executable, __file__, "--serve", str(api), "--nodes", str(nodes)]
        environment = {**os.environ, "GAIA_STATE": scratch}
        with (
            (Path(scratch) / "log").open("w+") as log,
            process([*again, "--pods", str(pods), "--requests", str(requests)]),
        ):
            until_there(api, "/api/v1/nodes?limit=1")
            begun = time.perf_counter()
            gaia = str(Path(sys.executable).with_name("gaia"))
            options = ["extender", "--kubeconfig", str(kubeconfig), "--port", str(port)]
            with process([gaia, *options], env=environment, stderr=log) as extender:
                until_there(port, "/readyz")
                synced = time.perf_counter() - begun
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                settled = resident(extender.pid)
                filters, binds, failed = [], [], 0
                cpu, begun = processor(extender.pid), time.perf_counter()
                spent = 0.0
                for pod in cluster.pending:
                    prepared = time.perf_counter()
                    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}, separators=(",", ":"))
                    spent += time.perf_counter() - prepared
                    answer, took = ask(connection, "filter", body.encode())
                    filters.append(took)
                    if not answer["NodeNames"]:
                        failed += 1
                        continue
                    metadata = pod["metadata"]
                    binding = {
                        "PodName": metadata["name"], "PodNamespace": metadata["namespace"],
                        "PodUID": metadata["uid"], "Node": answer["NodeNames"][0],
                    }  # fmt: skip
                    answer, took = ask(connection, "bind", json.dumps(binding).encode())
                    binds.append(took)
                    failed += bool(answer["Error"])
                    if answer["Error"]:
                        print(answer["Error"], file=sys.stderr)
                took_all = time.perf_counter() - begun - spent
                cpu = processor(extender.pid) - cpu
                peak = resident(extender.pid, "VmHWM")
                again_filters = again_and_again(connection, cluster, names)
                print(
                    f"| {nodes:,} | {pods:,} | {synced:.1f} s | {settled:.0f} / {peak:.0f}"
                    f" | {quantiles(filters)} | {quantiles(again_filters)} | {quantiles(binds)}"
                    f" | {len(binds) / took_all:.0f} | {len(binds) / cpu:.0f} | {failed} |",
                    flush=True,
                )


def again_and_again(
    connection: http.client.HTTPConnection, cluster: Cluster, names: list[str]
) -> list[float]:
    """Return the milliseconds of filters that fail everywhere: a sentence for each node."""
    found = []
    pod = json.loads(json.dumps(cluster.pending[0]))
    pod["metadata"]["uid"] = "too-large"
    # nine whole cards in two containers: none of eight has them, and each container alone would fit
    whole = {"gaia.io/vgpu-memory": str(4 * UNITS), "gaia.io/vgpu-cores": "400"}
    part = {"gaia.io/vgpu-memory": str(5 * UNITS), "gaia.io/vgpu-cores": "500"}
    pod["spec"]["containers"] = [
        {"name": name, "image": "x", "resources": {"limits": limits, "requests": limits}}
        for name, limits in (("one", whole), ("two", part))
    ]
    body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
    for _ in range(50):
        _, took = ask(connection, "filter", body)
        found.append(took)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, help="one size only")
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        from benchmarks.large_cluster.server import serve

        serve(objects(Cluster(options.nodes, options.pods, options.requests)), options.serve)
        return
    print("| nodes | bound pods | start to ready | MiB settled / peak | filter p50 / p99 ms |", end="")
    print(" refused everywhere ms | bind p50 / p99 ms | pods/s | pods per CPU second | failed |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for nodes in [options.nodes] if options.nodes else SIZES:
        # a hundred nodes of eight cards do not hold more
        measure(nodes, min(options.pods, nodes * 40), options.requests)


if __name__ == "__main__":
    main()
