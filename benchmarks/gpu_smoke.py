"""Smoke test on a real card: PyTorch, CuPy, JAX and nvidia-smi under a 1 GiB limit, through the shadow.

Run by `make test-gpu`. Each program starts by `gaia run --memory 1GiB` on the system's driver, sees a
card of 1 GiB, allocates until it is refused with an ordinary out-of-memory error, and lives on.
Prints one line a program and a JSON document at the end, which belongs into `docs/evidence/`. Exits 1
when a program fails, 2 when this machine has no card. A framework that is not installed is reported
as absent, not as passed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

GAIA = Path(sys.executable).with_name("gaia")
LIMIT = "1GiB"
LIMIT_BYTES = 1 << 30

TORCH = """
import json, torch
free, total = torch.cuda.mem_get_info()
held, refused = [], None
try:
    for _ in range(64):
        held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    refused = str(error)[:120]
got = sum(block.numel() for block in held)
held.clear()
torch.cuda.empty_cache()
again = torch.ones(1 << 20, device="cuda").sum().item()
print(json.dumps({"version": torch.__version__, "total": total, "allocated": got, "refused": refused,
                  "alive": again == 1 << 20}))
"""

CUPY = """
import json, cupy
free, total = cupy.cuda.runtime.memGetInfo()
held, refused = [], None
try:
    for _ in range(64):
        held.append(cupy.empty(64 << 20, dtype=cupy.uint8))
except cupy.cuda.memory.OutOfMemoryError as error:
    refused = str(error)[:120]
got = sum(block.nbytes for block in held)
held.clear()
cupy.get_default_memory_pool().free_all_blocks()
again = float(cupy.ones(1 << 20).sum())
print(json.dumps({"version": cupy.__version__, "total": total, "allocated": got, "refused": refused,
                  "alive": again == 1 << 20}))
"""

JAX = """
import json, jax, jax.numpy as jnp
device = jax.devices("gpu")[0]
held, refused, got = [], None, 0
try:
    for _ in range(64):
        block = jnp.zeros(64 << 20, dtype=jnp.uint8).block_until_ready()
        held.append(block)
        got += block.nbytes
except Exception as error:
    refused = str(error)[:120]
limit = (device.memory_stats() or {}).get("bytes_limit", 0)
held.clear()
again = float(jnp.ones(1 << 20).sum())
print(json.dumps({"version": jax.__version__, "total": limit, "allocated": got, "refused": refused,
                  "alive": again == 1 << 20}))
"""

PROGRAMS = {"torch": TORCH, "cupy": CUPY, "jax": JAX}


def sliced(*command: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in a slice of 1 GiB and a quarter of a card."""
    return subprocess.run(
        [str(GAIA), "run", "--memory", LIMIT, "--cores", "25", "--", *command],
        capture_output=True,
        text=True,
        timeout=180,
    )


def framework(python: str, name: str, program: str) -> dict[str, object]:
    """Run one framework's program; `ok` means limited, refused properly, and alive afterwards."""
    done = sliced(python, "-c", program)
    if done.returncode != 0:
        return {"ok": False, "error": (done.stderr or done.stdout)[-600:]}
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    allocated = found["allocated"]
    assert isinstance(allocated, int)
    found["ok"] = bool(found["alive"] and found["refused"] and 0 < allocated <= LIMIT_BYTES)
    return found


def nvidia_smi() -> dict[str, object]:
    """Ask nvidia-smi, inside the slice, how much memory the card has."""
    done = sliced("nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits")
    if done.returncode != 0:
        return {"ok": False, "error": (done.stderr or done.stdout)[-600:]}
    total = int(done.stdout.splitlines()[0].split(",")[0])
    return {"ok": total == LIMIT_BYTES >> 20, "total_mib": total}


def card() -> dict[str, str]:
    """Return name and driver of the first card, or nothing."""
    if shutil.which("nvidia-smi") is None:
        return {}
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 or not done.stdout.strip():
        return {}
    name, driver = (part.strip() for part in done.stdout.splitlines()[0].split(","))
    return {"card": name, "driver": driver}


def main() -> int:
    """Print a line a program, then the document; see the module's text for the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--python", default=sys.executable, help="the Python that has the frameworks")
    python = parser.parse_args().python
    document: dict[str, object] = {"date": datetime.date.today().isoformat(), "limit": LIMIT, **card()}
    if "card" not in document:
        print("No NVIDIA card here (nvidia-smi finds none): nothing was tested.", file=sys.stderr)
        return 2
    results: dict[str, dict[str, object]] = {"nvidia-smi": nvidia_smi()}
    for name, program in PROGRAMS.items():
        here = python != sys.executable or importlib.util.find_spec(name) is not None
        results[name] = framework(python, name, program) if here else {"ok": None, "error": "not installed"}
    for name, found in results.items():
        verdict = {True: "ok", False: "FAILED", None: "absent"}[found["ok"]]  # type: ignore[index]
        print(f"{name:12} {verdict:8} {found}")
    document["results"] = results
    print(json.dumps(document, indent=2))
    return 1 if any(found["ok"] is False for found in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
