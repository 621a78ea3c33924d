"""Waits for the node's driver, which comes late at boot and may hang."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from gaia_plugin import paths
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.gpu.nvml import Nvml

log = structlog.get_logger(__name__)

EVERY: Final = 2.0
"""Seconds between two looks for a driver that is not there yet: NVML comes late at boot."""

AGAIN: Final = 180.0
"""Seconds after which it is said again what is waited for: logs are read from their end."""

_T = TypeVar("_T")


def locate(driver: Path | None, root: Path) -> Path:
    """Return the directory of the driver's libraries as this process sees it.

    Args:
        driver: what GAIA_DRIVER says.
        root: where the node's root is mounted.

    Raises:
        Unusable: it is not there; names the variables.
    """
    libraries = " beside ".join(paths.DRIVER_LIBRARIES)
    if driver is not None:
        if all((driver / name).exists() for name in paths.DRIVER_LIBRARIES):
            return driver
        raise Unusable(
            f"GAIA_DRIVER is {driver}, where this process sees no {libraries}. Name the directory below "
            "GAIA_DRIVER_ROOT that has both, or leave GAIA_DRIVER out."
        )
    if (found := paths.find_driver(root)) is not None:
        return found
    raise Unusable(
        f"No NVIDIA driver ({libraries}) was found below GAIA_DRIVER_ROOT, which is {root}: it has to be "
        "where the node's root is mounted. A driver at an unusual place is named with GAIA_DRIVER, as this "
        "process sees it."
    )


async def until_driver(
    driver: Path | None,
    root: Path,
    stop: asyncio.Event,
    *,
    load: Callable[[Path], Nvml] = Nvml,
    every: float = EVERY,
    again: float = AGAIN,
) -> tuple[Path, Nvml] | None:
    """Return the driver as soon as it is there and lists a card; None when the agent is to end before.

    Args:
        driver: its directory; None: looked for below `root`.
        root: where the node's root is mounted.
        stop: set when the agent is to end.
        load: opens NVML in a directory.
        every: seconds between two looks.
        again: seconds after which the same reason is logged again.
    """

    def look() -> tuple[Path, Nvml]:
        directory = locate(driver, root)
        gpus = load(directory)
        if gpus.cards():
            return directory, gpus
        gpus.close()
        raise Unusable(f"The driver in {directory} lists no card.")

    said, at = "", 0.0
    while not stop.is_set():
        looking = _apart(look)
        await _either(looking, stop, again)
        while not looking.done() and not stop.is_set():
            log.warning("waiting for the driver", why="NVML has not answered; look at `dmesg` on the node")
            await _either(looking, stop, again)
        if not looking.done():
            looking.cancel()
            return None
        try:
            return looking.result()
        except (Refusal, Unusable) as error:
            why = str(error)
        if why != said or time.monotonic() - at >= again:
            log.warning("waiting for the driver", why=why)
            said, at = why, time.monotonic()
        await _either(None, stop, every)
    return None


def _apart(call: Callable[[], _T]) -> asyncio.Future[_T]:
    """Call in a thread that nobody waits for at the end: a driver that hangs hangs for ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(set_it: Callable[..., None], value: object) -> None:
        if not future.done():
            set_it(value)

    def work() -> None:
        try:
            outcome: tuple[Callable[..., None], object] = (future.set_result, call())
        except Exception as error:  # handed over, not swallowed
            outcome = (future.set_exception, error)
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=work, name="driver", daemon=True).start()
    return future


async def _either(future: asyncio.Future[_T] | None, stop: asyncio.Event, seconds: float) -> None:
    """Wait for the future, for the end of the agent, or so long."""
    stopped = asyncio.ensure_future(stop.wait())
    waited: set[asyncio.Future[Any]] = {stopped} if future is None else {stopped, future}
    try:
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
