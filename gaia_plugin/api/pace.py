"""How often a slot's socket may be asked, so that one container's programs cost the node little.

What is refused is answered late on purpose. A slot has few connections, so a program that asks in a loop
is held to a few hundred refusals a second, each of which costs the agent next to nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gaia_plugin.errors import Code, Refusal

REQUESTS_PER_SECOND: Final = 100
"""Of one slot's socket, whatever is asked; streams of events count when they are opened."""

RESIZES_PER_SECOND: Final = 5

LATE: Final = 0.02
"""Seconds after which a refusal is sent."""

Answer = Callable[[Refusal], ASGIApp]


class RateLimit:
    """At most `rate` calls in any second. One per slot; on the event loop only.

    Args:
        rate: how many.
        sentence: what is said of one too many.
        clock: monotonic seconds.
    """

    def __init__(self, rate: int, sentence: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._sentence = sentence
        self._clock = clock
        self._times: deque[float] = deque()

    def take(self) -> None:
        """Count one call.

        Raises:
            Refusal: ``too_many_requests``.
        """
        now = self._clock()
        while self._times and now - self._times[0] >= 1.0:
            self._times.popleft()
        if len(self._times) >= self._rate:
            raise Refusal(Code.TOO_MANY_REQUESTS, self._sentence)
        self._times.append(now)


def requests(clock: Callable[[], float] = time.monotonic) -> RateLimit:
    """Return the limit on all requests of one slot."""
    return RateLimit(
        REQUESTS_PER_SECOND,
        f"A slot can be asked {REQUESTS_PER_SECOND} times a second; ask less often, or read "
        "/v1/slot/events, which tells every change.",
        clock,
    )


def resizes(clock: Callable[[], float] = time.monotonic) -> RateLimit:
    """Return the limit on resizes of one slot by its own programs."""
    return RateLimit(
        RESIZES_PER_SECOND,
        f"A slot can be resized {RESIZES_PER_SECOND} times a second; wait a second and ask again.",
        clock,
    )


class Paced:
    """An application that is asked no more often than `limit` allows; the rest `answer` refuses, late.

    Before anything is looked at: a request that names no path of ours, or a body that is nonsense, costs
    as much as a good one.
    """

    def __init__(self, app: ASGIApp, limit: RateLimit, answer: Answer) -> None:
        self._app = app
        self._limit = limit
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        app = self._app
        if scope["type"] == "http":
            try:
                self._limit.take()
            except Refusal as refusal:
                await asyncio.sleep(LATE)
                app = self._answer(refusal)
        await app(scope, receive, send)
