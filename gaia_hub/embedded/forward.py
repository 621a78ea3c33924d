"""Forwarding one request: HTTP as streams of a constant size, websockets message by message.

Nothing is collected. A body is passed on as it is read, in both directions, and reading waits for
writing, so that a large upload or a slow reader costs a few buffers of 64 KiB and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from gaia_hub.embedded import headers as _headers

LONGEST_LINE: Final = 64 << 10
"""Bytes of a header or request line that pass: browsers bring many cookies to a hub."""

_UNIX: Final = "http+unix"
_AUTOMATIC: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

ErrorPage = Callable[[web.BaseRequest, int], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class Forwarder:
    """Sends requests to backends: ``http://host:port`` or ``http+unix://<path, percent-encoded>``."""

    def __init__(self, error_page: ErrorPage, *, trusted: bool = False) -> None:
        self._error_page = error_page
        self._trusted = trusted
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close every connection to a backend."""
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def forget(self, target: str) -> None:
        """Close what is kept for a backend on a unix socket that is gone."""
        session = self._sessions.pop(_socket_path(target), None)
        if session is not None:
            await session.close()

    def _session(self, target: str) -> aiohttp.ClientSession:
        socket_path = _socket_path(target)
        session = self._sessions.get(socket_path)
        if session is None:
            connector = (
                aiohttp.UnixConnector(socket_path, limit=0)
                if socket_path
                else aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
            )
            session = self._sessions[socket_path] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                auto_decompress=False,
                skip_auto_headers=_AUTOMATIC,
                max_line_size=LONGEST_LINE,
                max_field_size=LONGEST_LINE,
            )
        return session

    def _url(self, target: str, raw_path: str) -> URL:
        base = "http://localhost" if _socket_path(target) else target
        return URL(base + raw_path, encoded=True)

    def _request_headers(self, request: web.BaseRequest, *, websocket: bool = False) -> CIMultiDict[str]:
        local = request.transport.get_extra_info("sockname") if request.transport else None
        return _headers.for_backend(
            request.headers.items(),
            peer=request.remote or "127.0.0.1",
            scheme=request.scheme,
            host=request.host,
            port=local[1] if isinstance(local, tuple) else 80,
            trusted=self._trusted,
            websocket=websocket,
        )

    async def forward(self, request: web.BaseRequest, target: str) -> web.StreamResponse:
        """Answer a request from the backend `target`; with an error page if it does not answer."""
        raw_path = origin_form(request.raw_path)
        if is_websocket(request):
            return await self._websocket(request, target, raw_path)
        return await self._http(request, target, raw_path)

    async def fetch(self, target: str, raw_path: str) -> bytes:
        """Return the body of a GET at a backend, for pages of the proxy's own.

        Raises:
            aiohttp.ClientError, OSError: the backend does not answer, or not with 200.
        """
        async with self._session(target).get(self._url(target, raw_path)) as answer:
            answer.raise_for_status()
            return await answer.read()

    # HTTP

    async def _http(self, request: web.BaseRequest, target: str, raw_path: str) -> web.StreamResponse:
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = request.content if request.can_read_body else None
        try:
            upstream = await self._session(target).request(
                request.method,
                self._url(target, raw_path),
                headers=self._request_headers(request),
                data=body,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            log.warning("%s %s: the backend %s does not answer: %s", request.method, raw_path, target, error)
            return await self._error_page(request, 503)
        try:
            return await _answer(request, upstream)
        finally:
            # Read to its end it has gone back to the pool by itself; else the backend shall notice.
            upstream.close()

    # websockets

    async def _websocket(self, request: web.BaseRequest, target: str, raw_path: str) -> web.StreamResponse:
        offered = [
            name.strip()
            for value in request.headers.getall("Sec-WebSocket-Protocol", [])
            for name in value.split(",")
            if name.strip()
        ]
        try:
            upstream = await self._session(target).ws_connect(
                self._url(target, raw_path),
                headers=self._request_headers(request, websocket=True),
                protocols=offered,
                autoclose=False,
                autoping=False,
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_receive=None, ws_close=5),
            )
        except aiohttp.WSServerHandshakeError as error:
            refusal = _headers.end_to_end(error.headers.items()) if error.headers is not None else None
            if refusal is not None:
                refusal.popall("Content-Length", None)
                refusal.popall("Content-Encoding", None)
            return web.Response(status=error.status if error.status >= 300 else 502, headers=refusal)
        except (aiohttp.ClientError, OSError) as error:
            log.warning("websocket %s: the backend %s does not answer: %s", raw_path, target, error)
            return await self._error_page(request, 503)
        agreed = [upstream.protocol] if upstream.protocol else []
        browser = web.WebSocketResponse(
            protocols=agreed, autoclose=False, autoping=False, max_msg_size=0, timeout=5, compress=False
        )
        try:
            await browser.prepare(request)
            await _both_ways(browser, upstream)
        finally:
            await upstream.close()
        return browser


async def _answer(request: web.BaseRequest, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(
        status=upstream.status,
        reason=upstream.reason,
        headers=_headers.end_to_end((_text(k), _text(v)) for k, v in upstream.raw_headers),
    )
    bodyless = request.method == "HEAD" or upstream.status in (204, 304)
    if not bodyless and "Content-Length" not in response.headers:
        if request.version >= aiohttp.HttpVersion11:
            response.enable_chunked_encoding()
        else:
            response.force_close()
    try:
        await response.prepare(request)
        if not bodyless:
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
        await response.write_eof()
    except (aiohttp.ClientError, ConnectionError) as error:
        # The head is out, so the only honest sign left is an answer that breaks off.
        log.info("%s %s broke off: %s", request.method, request.path, error)
        if request.transport is not None:
            request.transport.abort()
    return response


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


_Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def _both_ways(browser: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse) -> None:
    """Pass messages until one side ends, then end both with the code and reason of that side.

    Nobody may be receiving any more when a side is closed: aiohttp wakes the receiver first, and
    whoever takes that for the end loses the code.
    """
    pumps = [asyncio.ensure_future(_pump(browser, upstream)), asyncio.ensure_future(_pump(upstream, browser))]
    try:
        ended, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
    code, reason = ended.pop().result()
    for side in (upstream, browser):
        with suppress(ConnectionError, aiohttp.ClientError, RuntimeError):
            await side.close(code=code, message=reason)


async def _pump(source: _Socket, sink: _Socket) -> tuple[int, bytes]:
    """Pass messages on until `source` ends; return the code and reason to end `sink` with."""
    with suppress(ConnectionError, aiohttp.ClientError, RuntimeError):
        while True:
            message = await source.receive()
            if message.type == aiohttp.WSMsgType.TEXT:
                await sink.send_str(message.data)
            elif message.type == aiohttp.WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            elif message.type == aiohttp.WSMsgType.PING:
                await sink.ping(message.data)
            elif message.type == aiohttp.WSMsgType.PONG:
                await sink.pong(message.data)
            elif message.type == aiohttp.WSMsgType.CLOSE:
                return _close_code(message.data), (message.extra or "").encode()
            else:
                break
    return aiohttp.WSCloseCode.GOING_AWAY.value, b""


def _close_code(code: object) -> int:
    """Return a code that may be sent: 1005, 1006 and 1015 only ever describe its absence."""
    if isinstance(code, int) and (1000 <= code <= 1014 or 3000 <= code <= 4999) and code not in (1005, 1006):
        return code
    return aiohttp.WSCloseCode.OK.value


def is_websocket(request: web.BaseRequest) -> bool:
    """Tell whether a request asks for a websocket."""
    wishes = request.headers.get("Connection", "").lower().split(",")
    return (
        request.method == "GET"
        and "upgrade" in (wish.strip() for wish in wishes)
        and request.headers.get("Upgrade", "").lower() == "websocket"
    )


def origin_form(raw_path: str) -> str:
    """Return path and query as sent; a proxy may also get the absolute form of RFC 9112 3.2.2."""
    if raw_path.startswith(("http://", "https://")):
        parts = urlsplit(raw_path)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return raw_path if raw_path.startswith("/") else "/" + raw_path


def _socket_path(target: str) -> str:
    return unquote(target.removeprefix(_UNIX + "://")) if target.startswith(_UNIX + "://") else ""
