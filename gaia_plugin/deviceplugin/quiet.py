"""Knows whether an Allocate is under way.

PodResources `List` makes the kubelet forget the device IDs of an Allocate in flight, and the next pod
gets them too. The kubelet asks for one resource after another, so a moment must have passed since the
last answer as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MOMENT: Final = 0.05
"""Seconds after an Allocate's answer in which the kubelet may still be at work on it, or at the next."""


class Quiet:
    """Counts the Allocates under way; shared by the plugins of a node and PodResources."""

    def __init__(self) -> None:
        self._under_way = 0
        self._last = float("-inf")

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Mark an Allocate as under way for the length of a `with` block."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._last = time.monotonic()

    @property
    def now(self) -> bool:
        """Whether no Allocate is under way and none was a moment ago."""
        return self._under_way == 0 and time.monotonic() - self._last >= MOMENT

    async def wait(self, seconds: float) -> bool:
        """Return True as soon as it is quiet; False if it was not for `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.now:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(MOMENT / 5)
        return True
