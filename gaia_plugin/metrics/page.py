"""The page of metrics: made at most once a second, however many ask for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gaia_plugin.metrics.collector import MEDIA_TYPE, render
from gaia_plugin.metrics.snapshot import Snapshot

log = structlog.get_logger(__name__)

FRESH: Final = 1.0
"""Seconds for which a page is handed out again: what is measured is of the last second anyhow."""

PATIENCE: Final = 5.0
"""Seconds that a reader waits for a new page. Prometheus gives up after ten."""


class Late(Exception):
    """There is no page that is new enough, and there will be none in time."""


class Page:
    """What was told last.

    Args:
        take: returns how the agent stands.
        fresh, patience: seconds, see `FRESH` and `PATIENCE`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        take: Callable[[], Awaitable[Snapshot]],
        *,
        fresh: float = FRESH,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take = take
        self._fresh = fresh
        self._patience = patience
        self._clock = clock
        self._text = b""
        self._at = float("-inf")
        self._making: asyncio.Task[None] | None = None

    async def text(self) -> bytes:
        """Return the page. All who ask while one is being made wait for that one.

        Raises:
            Late: an old page is never told as a new one, so there is none.
        """
        if self._clock() - self._at < self._fresh:
            return self._text
        if self._making is None or self._making.done():
            self._making = asyncio.get_running_loop().create_task(self._make())
        # a reader that gives up must not end it for the others
        done, _ = await asyncio.wait([self._making], timeout=self._patience)
        if not done:
            raise Late(
                f"The agent has not told its state for {self._patience:g} seconds; it is busy or stuck."
            )
        for making in done:
            if making.cancelled() or (fault := making.exception()) is not None:
                why = "it ends." if making.cancelled() else str(fault) or repr(fault)
                raise Late(f"The agent cannot tell its state: {why}")
        return self._text

    async def _make(self) -> None:
        snapshot = await self._take()
        at = self._clock()
        # a page of hundreds of slots takes long enough to be felt by everything else
        self._text = await asyncio.to_thread(render, snapshot)
        self._at = at

    async def close(self) -> None:
        """End what is being made."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])


def make_app(page: Page) -> Starlette:
    """Return an application that tells the page at ``/metrics`` and takes nothing."""

    async def metrics(_: Request) -> Response:
        headers = {"Connection": "close", "Cache-Control": "no-store"}
        try:
            return Response(await page.text(), 200, headers, MEDIA_TYPE)
        except Late as late:
            log.warning("metrics not told", why=str(late))
            return Response(f"{late}\n", 503, headers, "text/plain; charset=utf-8")

    return Starlette(routes=[Route("/metrics", metrics, methods=["GET"])], exception_handlers=_ELSE)


async def _no_page(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    said = "Metrics are read with GET." if status == 405 else "There is nothing here but /metrics."
    headers = {**(getattr(error, "headers", None) or {}), "Connection": "close"}
    return Response(f"{said}\n", status, headers, "text/plain; charset=utf-8")


_ELSE: Final = {404: _no_page, 405: _no_page}
