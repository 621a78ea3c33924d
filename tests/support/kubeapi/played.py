"""Time that passes only when somebody waits, so that five minutes take none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.reflector import Reflector


@dataclass
class PlayedTime:
    """A clock that only pauses advance; `on_pause` sees the time after each."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)
    on_pause: Callable[[float], None] = lambda _: None

    def clock(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.on_pause(self.now)
        await asyncio.sleep(0)


Start = Callable[..., Reflector[Pod]]
"""Starts a reflector that ends with its test."""
