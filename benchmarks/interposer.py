"""What the shadow libcuda costs per call, and whether the limit holds when processes race and are killed.

Builds libvgpu, puts the shadow in front of the simulated driver, and prints nanoseconds of CPU time per
call (medians), direct and through the shadow, measured in one run. Judge the difference: calls of a real
driver take microseconds, the simulated one's take far less, so the ratio here is the worst case.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOUSE))

from tests.c.slotbench import MIB, Bench  # noqa: E402

FIXED = ("--ms", "25", "--grid", "1")
TARGETS = {"alloc + free, 0 live": 60.0, "alloc + free, 10,000 live": 60.0, "cuMemGetInfo": 10.0}


def build(folder: Path) -> Path:
    """Compile the shadow, the simulated driver and the bench programs into `folder`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cmake = shutil.which("cmake", path=path)
    if not cmake:
        sys.exit("interposer: cmake is needed (pip install cmake, or apt install cmake)")
    for command in (
        [cmake, "-S", str(HOUSE / "libvgpu"), "-B", str(folder), "-DGAIA_TESTS=ON"],
        [cmake, "--build", str(folder), "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    return folder


def measure(slot: Bench, library: Path, operation: str, live: int, runs: int) -> float:
    """Median CPU nanoseconds of one operation, one thread, one process."""
    done = subprocess.run(
        [slot.build / "tests/bench", "--ops", operation, "--live", str(live), "--runs", str(runs), *FIXED],
        env=slot.environment() | {"LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        sys.exit(f"interposer: bench failed: {done.stdout}{done.stderr}")
    words = done.stdout.split("\t")
    return float(words[words.index("cpu_ns") + 1])


def spawn(slot: Bench, library: Path) -> float:
    """Median microseconds from start to end of a program that never uses CUDA."""
    done = subprocess.run(
        [slot.build / "tests/bench", "spawn", "201", "/bin/true"],
        env=slot.environment() | {"LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return float(done.stdout.split("\t")[3])


def costs(slot: Bench, runs: int, repeats: int) -> bool:
    """Print the table of costs. True when every target was met."""
    driver, shadow = slot.root / "driver", slot.slot / "lib"
    rows = [
        ("alloc + free, 0 live", "pair", 0),
        ("alloc + free, 10,000 live", "pair", 10_000),
        ("cuMemGetInfo", "meminfo", 0),
        ("cuLaunchKernel", "launch", 0),
    ]
    print(f"{'CPU ns per call':28} {'direct':>9} {'shadow':>9} {'added':>8} {'ratio':>7}  target")
    good = True
    for name, operation, live in rows:
        # direct and shadow in turn, so that a change of the machine's mood hits both
        pairs = [
            (measure(slot, driver, operation, live, runs), measure(slot, shadow, operation, live, runs))
            for _ in range(repeats)
        ]
        direct, through = (statistics.median(column) for column in zip(*pairs, strict=True))
        target = TARGETS.get(name)
        good &= target is None or through - direct <= target
        note = f"<= {target:.0f}" if target else ""
        print(
            f"{name:28} {direct:9.1f} {through:9.1f} {through - direct:8.1f} {through / direct:7.2f}  {note}"
        )
    direct, through = spawn(slot, driver), spawn(slot, shadow)
    added, ratio = through - direct, through / direct
    print(f"{'/bin/true, us start to end':28} {direct:9.0f} {through:9.0f} {added:8.0f} {ratio:7.2f}")
    return good


def race(slot: Bench, seconds: int, kill: int) -> bool:
    """Race four processes for 1 GiB, one killed every `kill` ms. True when nothing went over or hung."""
    limit = 1024 * MIB
    slot.limit(limit)
    arguments = [
        "--procs",
        "4",
        "--limit",
        str(limit),
        "--seconds",
        str(seconds),
        "--kill",
        str(kill),
        "--state",
        str(slot.state),
    ]
    try:
        out = slot.run("race", *arguments, timeout=seconds + 30)
    except subprocess.TimeoutExpired:
        print(f"race, kill every {kill} ms: HANGS")
        return False
    words = out.strip().split("\t")
    kills = words[3].removeprefix("kills=")
    value = {words[i]: words[i + 1] for i in range(4, len(words) - 1, 2)}
    print(
        f"race of 4 processes, {seconds} s, {kills} kills: {value['over_bytes']} bytes over, 0 hangs, "
        f"{value['ok']} granted, {value['refused']} refused, {value['other']} other errors, "
        f"whole limit again: {value['whole_limit_again']}"
    )
    return value["over_bytes"] == "0" and value["other"] == "0" and value["whole_limit_again"] == "yes"


def main() -> None:
    """Run both parts; the exit status tells whether the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--build", type=Path, default=HOUSE / "build" / "c", help="build folder")
    parser.add_argument("--runs", type=int, default=9, help="runs of 25 ms per measurement")
    parser.add_argument("--repeats", type=int, default=3, help="measurements, direct and shadow in turn")
    parser.add_argument("--seconds", type=int, default=5, help="length of a race")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="gaia-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
    ) as folder:
        slot = Bench(build(options.build), Path(folder) / "gaia", memory=64 * 1024 * MIB)
        slot.card(0, 32 * 1024 * MIB)
        good = costs(slot, options.runs, options.repeats)
        good &= race(slot, options.seconds, 0)
        good &= race(slot, options.seconds, 50)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
