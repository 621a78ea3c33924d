"""Prints what the device plugin costs the kubelet: Allocate, PreStartContainer and registering again.

The plugin runs in this process with a handler that does nothing but what it must; the kubelet is the
simulated one of the tests, over real sockets.

    python benchmarks/deviceplugin.py [--calls 2000] [--restarts 50] [--units 4488]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[1]))

from gaia_plugin.deviceplugin import Device, Plugin, keep_registered, memory_ids
from tests.support.kubelet import SimulatedKubelet

RESOURCE = "gaia.io/vgpu-memory"


class Answers:
    """A handler that makes a name and does nothing else."""

    def __init__(self) -> None:
        self.nonce = 0

    def allocate(self, resource: str, ids: frozenset[str]) -> str:
        """See `gaia_plugin.deviceplugin.Handler`."""
        self.nonce += 1
        return f"gaia.io/slot={hash(ids) & (1 << 64) - 1:016x}-{self.nonce:016x}"

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        """See `gaia_plugin.deviceplugin.Handler`."""


def line(what: str, seconds: list[float]) -> None:
    """Print one row: median, 99th percentile and worst, in milliseconds."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{what:44} {statistics.median(ordered) * 1e3:9.3f} {p99 * 1e3:9.3f} {ordered[-1] * 1e3:9.3f}")


async def calls(kubelet: SimulatedKubelet, plugin: Plugin, count: int, ids: tuple[str, ...]) -> None:
    """Time calls for `ids`, from both ends."""
    endpoint = kubelet.endpoint(RESOURCE)
    assert endpoint is not None
    inside: list[float] = []
    broken = plugin.quiet.broken

    @contextlib.contextmanager
    def timed() -> Iterator[None]:
        start = time.perf_counter()
        with broken():
            yield
        inside.append(time.perf_counter() - start)

    plugin.quiet.broken = timed  # type: ignore[method-assign]
    for what, call in (("Allocate", endpoint.allocate), ("PreStartContainer", endpoint.prestart)):
        whole = []
        for _ in range(count):
            start = time.perf_counter()
            await call(ids)
            whole.append(time.perf_counter() - start)
        line(f"{what}, {len(ids)} IDs, as the kubelet sees it", whole)
    plugin.quiet.broken = broken  # type: ignore[method-assign]
    line(f"Allocate, {len(ids)} IDs, in the plugin", inside)


async def restarts(kubelet: SimulatedKubelet, count: int) -> None:
    """Time how long a kubelet that has come up waits for the plugin and its list."""
    seconds = []
    for _ in range(count):
        await kubelet.restart()
        await kubelet.registered(RESOURCE)
        seconds.append(kubelet.registrations[-1][1] - kubelet.came_up)
    line("registered again after the kubelet's socket", seconds)


async def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--calls", type=int, default=2000)
    arguments.add_argument("--restarts", type=int, default=50)
    arguments.add_argument("--units", type=int, default=4488, help="IDs of the node; 4488 are 8 x 140 GiB")
    given = arguments.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with tempfile.TemporaryDirectory(prefix="gk") as directory:
        kubelet = SimulatedKubelet(Path(directory, "kubelet"), Path(directory))
        plugin = Plugin(RESOURCE, kubelet.directory, Answers())
        plugin.update([Device(each) for each in memory_ids(given.units)])
        keeping = asyncio.create_task(keep_registered([plugin], kubelet.directory))
        async with kubelet:
            await kubelet.registered(RESOURCE)
            print(f"{'milliseconds':44} {'p50':>9} {'p99':>9} {'worst':>9}")
            for amount in (16, given.units):
                await calls(
                    kubelet, plugin, given.calls if amount == 16 else given.calls // 10, memory_ids(amount)
                )
            await restarts(kubelet, given.restarts)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
