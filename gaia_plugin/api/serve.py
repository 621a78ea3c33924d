"""Serving one application on one unix socket, within limits, on a running event loop.

uvicorn's own server owns signals and one application; an agent has a socket per slot that come and
go, so its protocol class is used and the listening sockets are ours.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gaia_plugin.api import codec, problems, sockets
from gaia_plugin.errors import Code, Refusal

CONNECTIONS: Final = 8
HEADER_TIMEOUT: Final = 2.0
KEEP_ALIVE: Final = 30
_FLUSH: Final = 2.0
"""Seconds in which a client may read the last answer of a slot that is gone."""


def _full_answer(limit: int) -> bytes:
    refusal = Refusal(
        Code.UNAVAILABLE, f"This slot has {limit} connections open, which is all it may have; close one."
    )
    body = codec.encode(problems.problem(refusal))
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        f"content-type: {problems.MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


class _Limited(H11Protocol):
    """uvicorn's HTTP/1.1, with a limit on connections and on the time a request's head may take."""

    limit: int | None = CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer: asyncio.TimerHandle | None = None
        self._turned_away = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or say that there are too many and close it."""
        if self.limit is not None and len(self.connections) >= self.limit:
            self._turned_away = True
            transport.write(_full_answer(self.limit))
            transport.close()
            return
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unwatch_head()
        if not self._turned_away:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on with the request; its head must be whole within the time."""
        if self._turned_away:
            return
        before = self.cycle
        waiting = before is None or before.response_complete
        super().data_received(data)
        if not waiting:
            return
        if self.cycle is not before:
            self._unwatch_head()
        elif self._head_timer is None:
            self._watch_head()

    def pause_writing(self) -> None:
        """Pass on, unless the connection was turned away."""
        if not self._turned_away:
            super().pause_writing()

    def resume_writing(self) -> None:
        """Pass on, unless the connection was turned away."""
        if not self._turned_away:
            super().resume_writing()

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(HEADER_TIMEOUT, self._head_late)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


class _Unlimited(_Limited):
    limit = None


class Served:
    """A socket that is being served. Made by `serve`."""

    def __init__(self, path: Path, server: asyncio.Server, state: ServerState) -> None:
        self.path = path
        self._server = server
        self._state = state
        self._listening = True

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._state.connections)

    def stop_listening(self) -> None:
        """Take no new connection and remove the socket's file; those that are open go on."""
        if self._listening:
            self._listening = False
            self._server.close()
            # only now: later the path may be another slot's of the same name
            self.path.unlink(missing_ok=True)

    async def finish(self, patience: float) -> None:
        """Stop listening, let what is asked already be answered, then end all connections.

        Args:
            patience: seconds for the answers; a request without an answer by then is broken off.
        """
        self.stop_listening()
        if tasks := list(self._state.tasks):
            await asyncio.wait(tasks, timeout=patience)
        for connection in list(self._state.connections):
            connection.shutdown()  # what was written is still sent
        deadline = asyncio.get_running_loop().time() + _FLUSH
        while self._state.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)
        await self.close()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        self.stop_listening()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        for connection in list(self._state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve(app: ASGIApp, path: Path, *, limited: bool, mode: int = 0o600) -> Served:
    """Serve `app` at the unix socket `path` until `Served.close`.

    Args:
        app: the application.
        path: made anew; the caller holds the lock of the state directory.
        limited: a slot's socket has at most `CONNECTIONS` connections; the operator's any number.
        mode: of the socket; a container's processes may have any uid, so theirs is open to all of them.

    Raises:
        OSError: the socket cannot be made there.
    """
    # a tenant can send nonsense as fast as it likes; the log must not grow with it
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, access_log=False,
        timeout_keep_alive=KEEP_ALIVE, server_header=False, h11_max_incomplete_event_size=32 << 10,
    )  # fmt: skip
    config.load()
    state = ServerState()
    kind = _Limited if limited else _Unlimited
    loop = asyncio.get_running_loop()
    listener = sockets.bind(path, mode)
    extra: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
    server = await loop.create_unix_server(
        lambda: kind(config=config, server_state=state, app_state={}), sock=listener, backlog=64, **extra
    )
    return Served(path, server, state)
