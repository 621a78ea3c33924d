"""How long a resize takes: from the HTTP request at the server extension to the library's new answer.

Starts a Jupyter server in a slice of a simulated card (`gaia run --sim`), runs a cell in a kernel of that
server which asks for memory without a pause, and resizes the slice over and over through the extension, as
the panel does. The cell notes the moment at which the library's answer changes: granted after a grow,
refused after a shrink. Prints p50, p99 and the largest of both, beside the time of the HTTP answer alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import websocket

GIB = 1 << 30
TOKEN = "benchmark"
GAIA = Path(sys.executable).with_name("gaia")

CELL = """
import ctypes, mmap, os, struct, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
with open({path!r}, "r+b") as file:
    page = mmap.mmap(file.fileno(), 4096)
was, size = None, ctypes.c_size_t(5 << 30)
while page[0] == 0:
    granted = cuda.cuMemAlloc_v2(ctypes.byref(pointer), size) == 0
    if granted:
        cuda.cuMemFree_v2(pointer)
    if granted != was:
        was = granted
        page[16:24] = struct.pack("=Q", time.monotonic_ns())
        page[8] = 2 if granted else 1
"""


class Page:
    """What the cell and this program share: the last answer, and when it first came."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(4096))
        self._file = path.open("r+b", buffering=0)

    def wait(self, granted: bool) -> int:
        """Return the moment, in ns of the monotonic clock, since which the answer is `granted`."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            words = os.pread(self._file.fileno(), 24, 0)
            if words[8] == (2 if granted else 1):
                return int.from_bytes(os.pread(self._file.fileno(), 8, 16), sys.byteorder)
        raise SystemExit("the library's answer did not change within 20 s")

    def stop(self) -> None:
        """End the cell."""
        os.pwrite(self._file.fileno(), b"\1", 0)


class Server:
    """A Jupyter server in a slice of 4 GiB."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Send one request and return the JSON of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status >= 300:
            raise OSError(f"{method} {path}: {response.status} {text[:200]!r}")
        found: dict[str, object] = json.loads(text)
        return found

    def start_cell(self, source: str) -> websocket.WebSocket:
        """Run a cell in a new kernel and return without waiting for its end."""
        kernel = self.ask("POST", "/api/kernels", {"name": "python3"})["id"]
        channel = websocket.create_connection(
            f"ws://127.0.0.1:{self._port}/api/kernels/{kernel}/channels",
            header=[f"Authorization: token {TOKEN}"],
        )
        header = {
            "msg_id": "1",
            "msg_type": "execute_request",
            "username": "",
            "session": "1",
            "version": "5.3",
        }
        content = {"code": source, "silent": False, "store_history": False}
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": "shell",
        }
        channel.send(json.dumps(message))
        return channel


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Run a Jupyter server in a slice until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(GAIA), "run", "--sim", "--memory", "4GiB", "--cores", "25", "--",
        sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--ServerApp.port={port}",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}",
    ]  # fmt: skip
    environ = os.environ | {
        "GAIA_STATE": str(folder / "state"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    process = subprocess.Popen(command, env=environ, stderr=(folder / "log").open("w"))
    running = Server(port)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                running.ask("GET", "/api/status")
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit((folder / "log").read_text()) from None
                time.sleep(0.05)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def measure(running: Server, page: Page, rounds: int) -> dict[str, list[float]]:
    """Grow and shrink `rounds` times; return milliseconds by what was measured."""
    found: dict[str, list[float]] = {"grow": [], "shrink": [], "http answer": []}
    for number in range(2 * rounds):
        grow = number % 2 == 0
        page.wait(granted=not grow)
        time.sleep(0.21)  # the API takes five resizes a second
        began = time.monotonic_ns()
        running.ask("PATCH", "/gaia/api/slot", {"memory": "8GiB" if grow else "4GiB"})
        answered = time.monotonic_ns()
        changed = page.wait(granted=grow)
        found["grow" if grow else "shrink"].append((changed - began) / 1e6)
        found["http answer"].append((answered - began) / 1e6)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="gaia-resize-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        page = Page(folder / "page")
        with server(folder) as running:
            channel = running.start_cell(CELL.format(path=str(folder / "page")))
            found = measure(running, page, rounds)
            page.stop()
            channel.close()
    print(f"{'while a cell runs':20} {'rounds':>7} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    for what, times in found.items():
        p99 = statistics.quantiles(times, n=100, method="inclusive")[98]
        print(f"{what:20} {len(times):7} {statistics.median(times):8.2f} {p99:8.2f} {max(times):8.2f}")


if __name__ == "__main__":
    main()
