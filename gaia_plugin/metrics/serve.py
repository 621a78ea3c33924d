"""Serving the page over TCP so that no reader, however slow, and no number of them costs the agent much.

A connection is for one request and ends within a fixed time, whatever its other end does. uvicorn's own
server owns signals, so its protocol class is used, as for the other sockets of an agent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gaia_plugin.errors import Unusable
from gaia_plugin.metrics.address import Address, listen
from gaia_plugin.metrics.page import Page, make_app

log = structlog.get_logger(__name__)

CONNECTIONS: Final = 128
"""Open at once; whoever comes then is turned away. A process has few files, and slots need them."""

LIFE: Final = 15.0
"""Seconds after which a connection ends, read or not."""

AGAIN: Final = 10.0
"""Seconds after which an address that was taken is tried again."""

_LARGEST_HEAD: Final = 8 << 10


class _Reader(H11Protocol):
    """uvicorn's HTTP/1.1, for a limited time."""

    life: float = LIFE
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection; from now on its time runs."""
        # not `close`, which waits for what a reader never takes
        self._end = self.loop.call_later(self.life, transport.abort)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)


class _TurnedAway(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """End it."""
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Exporter:
    """Serves one application at one listening socket. Made by `serve`."""

    def __init__(self, server: asyncio.Server, state: ServerState) -> None:
        self._server = server
        self._state = state

    @property
    def port(self) -> int:
        """Return the port."""
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many readers are connected."""
        return len(self._state.connections)

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self._server.close()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        for connection in list(self._state.connections):
            if (transport := getattr(connection, "transport", None)) is not None:
                transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve(
    app: ASGIApp, listener: socket.socket, *, connections: int = CONNECTIONS, life: float = LIFE
) -> Exporter:
    """Serve `app` at `listener` until `Exporter.close`.

    Args:
        app: the application.
        listener: listens already; it is closed by the exporter.
        connections: how many may be open at once.
        life: seconds after which one ends.
    """
    # whoever reaches the port can send nonsense; the log must not grow with it
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False, h11_max_incomplete_event_size=_LARGEST_HEAD,
    )  # fmt: skip
    config.load()
    state = ServerState()

    def reader() -> asyncio.Protocol:
        if len(state.connections) >= connections:
            return _TurnedAway()
        made = _Reader(config=config, server_state=state, app_state={})
        made.life = life
        return made

    server = await asyncio.get_running_loop().create_server(reader, sock=listener)
    return Exporter(server, state)


@asynccontextmanager
async def told(page: Page, address: Address) -> AsyncIterator[Exporter]:
    """Serve a page at an address that is needed: on a machine where somebody has asked for it.

    Raises:
        Unusable: nobody can listen there.
    """
    exporter = await serve(make_app(page), listen(address))
    log.info("metrics", host=address.host or "all", port=exporter.port)
    try:
        yield exporter
    finally:
        await exporter.close()
        await page.close()


@asynccontextmanager
async def told_when_possible(page: Page, address: Address, *, again: float = AGAIN) -> AsyncIterator[None]:
    """Serve a page as soon as its address can be had: slices must not wait for metrics."""

    async def keep() -> None:
        said = ""
        while True:
            try:
                async with told(page, address):
                    await asyncio.get_running_loop().create_future()  # until it is cancelled
            except Unusable as unusable:
                if str(unusable) != said:
                    said = str(unusable)
                    log.warning("no metrics yet", why=said)
            except Exception:
                log.exception("metrics failed")
            await asyncio.sleep(again)

    keeping = asyncio.get_running_loop().create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
