"""How long `make demo` takes until its page answers: in a fresh clone, and on a second start.

Clones the repository into a temporary folder and runs `make demo` there twice, with a state of its own.
Packages come from whatever cache the machine has: run it twice for a warm one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(address: str) -> bool:
    """Tell whether a page is there."""
    try:
        with urllib.request.urlopen(address, timeout=2) as page:
            return bool(page.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start(clone: Path, state: Path) -> tuple[float, float]:
    """Run `make demo` until its login page answers, then Ctrl-C; return seconds up and seconds down."""
    port = free_port()
    began = time.monotonic()
    demo = subprocess.Popen(
        ["make", "demo", f"ARGS=--port {port}"],
        cwd=clone,
        env=os.environ | {"GAIA_STATE": str(state)},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not answers(f"http://127.0.0.1:{port}/hub/login"):
            if demo.poll() is not None:
                raise SystemExit(f"make demo ended with {demo.returncode}")
            time.sleep(0.05)
        up = time.monotonic() - began
    finally:
        ended = time.monotonic()
        os.killpg(demo.pid, signal.SIGINT)
        demo.wait(timeout=60)
    return up, time.monotonic() - ended


def main() -> None:
    """Print a table of both starts."""
    with tempfile.TemporaryDirectory(prefix="gaia-start-") as folder:
        clone = Path(folder) / "gaia"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        print(f"{'start':28} {'page up, s':>10} {'ended, s':>10}")
        for name in ("fresh clone, warm packages", "second start"):
            up, down = start(clone, Path(folder) / "state")
            print(f"{name:28} {up:10.1f} {down:10.1f}")


if __name__ == "__main__":
    main()
