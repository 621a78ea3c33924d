"""Waiting for what other threads and tasks bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], what: str = "", seconds: float = 120) -> None:
    """Return as soon as `holds()` is true; fail after `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not holds():
        assert loop.time() < deadline, f"not within {seconds} s: {what or holds}"
        await asyncio.sleep(0.005)
