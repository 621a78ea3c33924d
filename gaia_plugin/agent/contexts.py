"""What a context costs on each kind of card, measured once and kept.

Before the driver has a figure for a new process, the library charges it this constant. Too little
would let the first allocations of a slot past its limit; so it is measured with a program of our
own that makes a context on the bare driver and does nothing else.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Gpus
from gaia_plugin.ledger import CardCapacity
from gaia_plugin.units import GIB, MIB

log = structlog.get_logger(__name__)

FILE: Final = "contexts.json"
UNMEASURED: Final = 300 * MIB
_LARGEST: Final = 8 * GIB
_TIMEOUT: Final = 10.0
_NOTHING_SEEN: Final = 20

_PROBE: Final = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
device, context = ctypes.c_int(), ctypes.c_void_p()
code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
code = code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
print(code, flush=True)
sys.stdin.read()
"""


def context_bytes(
    state: Path,
    driver: Path,
    cards: Sequence[CardCapacity],
    gpus: Gpus,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Return the bytes that a context costs on the dearest of these cards.

    Kinds of card that were never measured are measured now, some tenths of a second each.
    """
    known = _load(state / FILE)
    for name in sorted({card.name for card in cards if card.healthy} - set(known)):
        card = next(card for card in cards if card.name == name and card.healthy)
        found = _measure(driver, card.uuid, gpus, clock)
        log.info("measured context", model=name, bytes=found)
        if found is not None:
            known[name] = found
            _save(state / FILE, known)
    return max((known.get(card.name, UNMEASURED) for card in cards), default=UNMEASURED)


def _measure(driver: Path, uuid: str, gpus: Gpus, clock: Callable[[], float]) -> int | None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    # a node's directory of all its libraries has another libc, too, with which no program here starts
    if not (driver / "libc.so.6").exists():
        environ["LD_LIBRARY_PATH"] = str(driver)
    command = [sys.executable, "-S", "-c", _PROBE, str(driver / "libcuda.so.1")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as probe:
        try:
            return _figure(probe, uuid, gpus, clock)
        finally:
            probe.kill()


def _figure(probe: subprocess.Popen[bytes], uuid: str, gpus: Gpus, clock: Callable[[], float]) -> int | None:
    assert probe.stdout is not None
    # a driver that hangs must not hang the agent's start
    ready, _, _ = select.select([probe.stdout], [], [], _TIMEOUT)
    if not ready or probe.stdout.readline().strip() != b"0":
        return None
    # a driver may list a process late, and first without its memory: two equal figures in a row are
    # one to go by, and nothing at all must be said for longer before it is believed
    deadline, last, nothing = clock() + _TIMEOUT, None, 0
    while clock() < deadline:
        try:
            listed = gpus.processes(uuid)
        except Refusal:
            return None
        figure = listed.get(probe.pid)
        if probe.pid in listed and figure is None:
            return None
        if figure and figure == last:
            return min(figure, _LARGEST)
        nothing = nothing + 1 if figure == 0 else 0
        if nothing == _NOTHING_SEEN:
            return 0
        last = figure
        time.sleep(0.02)
    return None


def _load(path: Path) -> dict[str, int]:
    try:
        read = json.loads(path.read_text())
        return {
            name: value for name, value in read.items() if isinstance(value, int) and 0 <= value <= _LARGEST
        }
    except (OSError, ValueError, AttributeError):
        return {}


def _save(path: Path, known: dict[str, int]) -> None:
    aside = path.with_suffix(".new")
    try:
        aside.write_text(json.dumps(known, indent=1))
        aside.rename(path)
    except OSError as error:
        log.warning("not kept", path=str(path), why=error.strerror)
