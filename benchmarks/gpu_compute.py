"""Compute shares on a real card: four kernel shapes, one and two tenants, hard and elastic, and a loop.

Run by `make test-gpu` after the smoke test. A tenant is a CuPy program in a slice (`gaia run`) that launches
one spin kernel over and over and counts what it finished; its share is that rate over the rate of the same
program with the whole card to itself, so the card's own clock is the measure. The training loop is the same
small PyTorch program with and without the library; the paper's overhead was 1.015 % on average.

Prints a table and a JSON document for `docs/evidence/`. Exits 2 where there is no card or no CuPy.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

GAIA = Path(sys.executable).with_name("gaia")

TENANT = """
import sys, time, json
import cupy
blocks, synchronise = int(sys.argv[1]), int(sys.argv[3])
micros, seconds = float(sys.argv[2]), float(sys.argv[4])
source = '''
extern "C" __global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) { }
}'''
spin = cupy.RawKernel(source, "spin")
stream = cupy.cuda.get_current_stream()
clock = cupy.cuda.Device().attributes["ClockRate"] * 1000  # Hz
cycles = max(1, int(micros * 1e-6 * clock))
spin((blocks,), (128,), (cycles,))
stream.synchronize()
print("ready", flush=True)
sys.stdin.readline()
began, done, queued = time.monotonic(), 0, []
while time.monotonic() - began < seconds:
    spin((blocks,), (128,), (cycles,))
    event = cupy.cuda.Event(disable_timing=True)
    event.record()
    queued.append(event)
    while len(queued) > (0 if synchronise else 64):
        queued.pop(0).synchronize()
        done += 1
stream.synchronize()
done += len(queued)
print(json.dumps({"done": done, "seconds": time.monotonic() - began}))
"""

LOOP = """
import json, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
best = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(256, 1024, device="cuda")
def step():
    best.zero_grad(set_to_none=True)
    model(batch).square().mean().backward()
    best.step()
for _ in range(50):
    step()
torch.cuda.synchronize()
began = time.monotonic()
for _ in range(1000):
    step()
torch.cuda.synchronize()
print(json.dumps({"seconds": time.monotonic() - began}))
"""


@dataclass(frozen=True)
class Shape:
    """A kernel: its name, blocks, time of one block in microseconds, and whether each is waited for."""

    name: str
    blocks: int
    micros: float
    synchronise: bool


SHAPES = (
    Shape("1,024 short blocks", 1_024, 500, False),
    Shape("65,536 blocks", 65_536, 20, False),
    Shape("524,288 blocks", 524_288, 20, False),
    Shape("one 50 ms kernel, synchronised", 128, 50_000, True),
)


class Tenant:
    """One program, in a slice or on the bare card."""

    def __init__(self, python: str, shape: Shape, seconds: float, slice_: list[str] | None) -> None:
        words = [str(shape.blocks), str(shape.micros), str(int(shape.synchronise)), str(seconds)]
        command = [python, "-c", TENANT, *words]
        if slice_ is not None:
            command = [str(GAIA), "run", "--memory", "4GiB", *slice_, "--", *command]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise SystemExit(f"a tenant did not start: {' '.join(command[:8])}")

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def rate(self) -> float:
        """Return kernels per second, when it has ended."""
        found = json.loads(self._process.communicate(timeout=180)[0])
        return float(found["done"]) / float(found["seconds"])


def together(python: str, shape: Shape, seconds: float, slices: list[list[str] | None]) -> list[float]:
    """Run tenants at the same time; return their rates."""
    tenants = [Tenant(python, shape, seconds, each) for each in slices]
    for tenant in tenants:
        tenant.go()
    return [tenant.rate() for tenant in tenants]


def shares(python: str, shape: Shape, seconds: float) -> dict[str, list[float]]:
    """Return percent of the card by arrangement, for one shape."""
    (whole,) = together(python, shape, seconds, [None])
    arrangements: dict[str, list[list[str] | None]] = {
        **{f"hard {cores}": [["--cores", str(cores)]] for cores in (10, 25, 50, 75)},
        "hard 30 + 60": [["--cores", "30"], ["--cores", "60"]],
        "elastic 25 alone": [["--cores", "25", "--elastic"]],
        "elastic 30 + 60": [["--cores", "30", "--elastic"], ["--cores", "60", "--elastic"]],
    }
    return {
        name: [round(100 * rate / whole, 2) for rate in together(python, shape, seconds, slices)]
        for name, slices in arrangements.items()
    }


def overhead(python: str) -> float:
    """Return by how many percent a training loop is slower with the library on a whole card."""
    bare, sliced = [], []
    for _ in range(3):
        for command, found in (
            ([python, "-c", LOOP], bare),
            ([str(GAIA), "run", "--cores", "100", "--", python, "-c", LOOP], sliced),
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
            found.append(float(json.loads(done.stdout.splitlines()[-1])["seconds"]))
    return round(100 * (min(sliced) / min(bare) - 1), 3)


def main() -> int:
    """Print the table and the document; see the module's text for the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="the Python that has CuPy and PyTorch")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    given = parser.parse_args()
    probe = [given.python, "-c", "import cupy; cupy.cuda.runtime.getDeviceCount()"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        print("No card, or no CuPy, here: nothing was measured.", file=sys.stderr)
        return 2
    began = time.monotonic()
    table = {shape.name: shares(given.python, shape, given.seconds) for shape in SHAPES}
    for name, row in table.items():
        print(name)
        for arrangement, found in row.items():
            print(f"  {arrangement:20} {'  '.join(f'{share:6.2f}' for share in found)}")
    torch_there = subprocess.run([given.python, "-c", "import torch"], capture_output=True).returncode == 0
    slower = overhead(given.python) if torch_there else None
    print(f"training loop, slower by: {'not measured' if slower is None else f'{slower} %'}")
    print(json.dumps({"shares": table, "loop_percent": slower, "took": round(time.monotonic() - began)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
