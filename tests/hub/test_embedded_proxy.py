"""The embedded proxy between real clients and real backends (aiohttp and tornado), over TCP and unix."""

# ruff: noqa: SIM117  one context a line reads better here
from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import aiohttp
import pytest
import tornado.httpserver
import tornado.netutil
import tornado.web
import tornado.websocket
from aiohttp import web

from gaia_hub.embedded.proxy import EmbeddedProxy

CHUNK = b"\xa5" * 65536
BIG = 200 << 20
PATIENCE = 60.0
"""Seconds after which what is waited for is held not to come."""
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def backend(handler: Handler, unix: Path | None = None) -> AsyncIterator[str]:
    """Serve `handler` with aiohttp and yield the address as a route's target."""
    runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=1)
    await runner.setup()
    port = _port()
    await (web.UnixSite(runner, str(unix)) if unix else web.TCPSite(runner, "127.0.0.1", port)).start()
    try:
        yield f"http+unix://{quote(str(unix), safe='')}" if unix else f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def proxied(
    target: str = "", spec: str = "/", hub: object = None, **traits: object
) -> AsyncIterator[str]:
    """Run the proxy with one route and yield its address."""
    address = f"http://127.0.0.1:{_port()}"
    proxy = EmbeddedProxy(public_url=address, hub=hub, app=SimpleNamespace(subdomain_host=""), **traits)
    await proxy.start()
    if target:
        await proxy.add_route(spec, target, {"hub": True})
    try:
        yield address
    finally:
        await proxy.stop()


async def _tells(request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response(
        {
            "path": request.raw_path,
            "headers": [[k, v] for k, v in request.headers.items()],
            "method": request.method,
        }
    )


async def _told(address: str, path: str = "/", **options: object) -> dict[str, object]:
    async with aiohttp.ClientSession() as session, session.get(address + path, **options) as answer:
        return dict(await answer.json())


@pytest.mark.parametrize("path", ["/a%2Fb/c%20d?x=%2B&y=a+b", "/%40/%C3%A9?q=%ff", "/a//b/"])
async def test_path_and_query_arrive_as_they_were_sent(path: str) -> None:
    async with backend(_tells) as target, proxied(target) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
    assert " 200 " in answer.splitlines()[0]
    assert f'"path": "{path}"' in answer


async def test_host_stays_and_the_client_is_named_truly() -> None:
    async with backend(_tells) as target, proxied(target) as address:
        told = await _told(
            address,
            headers={"Host": "hub.example:81", "X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "https"},
        )
    headers = {key.lower(): value for key, value in told["headers"]}
    assert headers["host"] == "hub.example:81"
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-host"] == "hub.example:81"
    assert headers["x-forwarded-port"] == address.rpartition(":")[2]


async def test_a_trusted_proxy_in_front_may_name_the_client() -> None:
    async with backend(_tells) as target, proxied(target, trust_forwarded=True) as address:
        told = await _told(address, headers={"X-Forwarded-For": "10.1.1.1", "X-Forwarded-Proto": "https"})
    headers = {key.lower(): value for key, value in told["headers"]}
    assert headers["x-forwarded-for"] == "10.1.1.1, 127.0.0.1"
    assert headers["x-forwarded-proto"] == "https"


async def test_headers_of_one_hop_do_not_pass() -> None:
    async with backend(_tells) as target, proxied(target) as address:
        told = await _told(
            address,
            headers={"Connection": "keep-alive, X-Secret", "X-Secret": "1", "TE": "trailers", "X-Kept": "2"},
        )
    names = {key.lower() for key, _ in told["headers"]}
    assert "x-kept" in names
    assert not names & {"x-secret", "te", "keep-alive"}


async def test_answers_keep_status_repeated_headers_and_compression() -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        response = web.Response(status=418, reason="Short and stout", body=b"\x1f\x8b-not-really")
        response.headers["Content-Encoding"] = "gzip"
        response.headers.add("Set-Cookie", "a=1")
        response.headers.add("Set-Cookie", "b=2")
        return response

    async with (
        backend(answer) as target,
        proxied(target) as address,
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(address) as got,
    ):
        assert (got.status, got.reason) == (418, "Short and stout")
        assert got.headers.getall("Set-Cookie") == ["a=1", "b=2"]
        assert await got.read() == b"\x1f\x8b-not-really"


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "OPTIONS", "PATCH", "PUT", "POST"])
async def test_every_method_passes(method: str) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=request.method, headers={"X-Method": request.method})

    async with backend(answer) as target, proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.request(method, address) as got:
            assert got.headers["X-Method"] == method
            assert await got.text() == ("" if method == "HEAD" else method)
            assert int(got.headers["Content-Length"]) == len(method)


async def test_a_redirect_is_for_the_browser() -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    async with backend(answer) as target, proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.get(address, allow_redirects=False) as got:
            assert (got.status, got.headers["Location"]) == (302, "/elsewhere")


async def test_an_event_passes_while_the_answer_goes_on() -> None:
    more = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await more.wait()
        await response.write(b"data: 2\n\n")
        return response

    async with backend(answer) as target, proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.get(address) as got:
            assert await asyncio.wait_for(got.content.readuntil(b"\n\n"), PATIENCE) == b"data: 1\n\n"
            more.set()
            assert await asyncio.wait_for(got.content.readuntil(b"\n\n"), PATIENCE) == b"data: 2\n\n"


@pytest.mark.parametrize("declared", [True, False], ids=["content-length", "chunked"])
async def test_a_large_upload_streams_in_constant_memory(declared: bool) -> None:
    async def count(request: web.BaseRequest) -> web.StreamResponse:
        total = 0
        async for chunk in request.content.iter_any():
            total += len(chunk)
        return web.Response(text=f"{total} {request.headers.get('Content-Length')}")

    async def body() -> AsyncIterator[bytes]:
        for _ in range(BIG // len(CHUNK)):
            yield CHUNK

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with backend(count) as target, proxied(target) as address, aiohttp.ClientSession() as session:
        headers = {"Content-Length": str(BIG)} if declared else {}
        async with session.put(address, data=body(), headers=headers) as got:
            assert await got.text() == f"{BIG} {BIG if declared else None}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


@pytest.mark.parametrize("declared", [True, False], ids=["content-length", "chunked"])
async def test_a_large_download_streams_in_constant_memory(declared: bool) -> None:
    async def send(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        if declared:
            response.content_length = BIG
        await response.prepare(request)
        for _ in range(BIG // len(CHUNK)):
            await response.write(CHUNK)
        return response

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with backend(send) as target, proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.get(address) as got:
            total = 0
            async for chunk in got.content.iter_any():
                total += len(chunk)
    assert total == BIG
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


async def test_a_slow_reader_holds_the_backend_back() -> None:
    sent = 0

    async def send(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(BIG // len(CHUNK)):
            await response.write(CHUNK)
            sent += len(CHUNK)
        return response

    async with backend(send) as target, proxied(target) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        earlier = -1
        while sent != earlier:  # until it stands still
            earlier = sent
            await asyncio.sleep(0.3)
        assert sent < 40 << 20  # socket buffers of two connections, not the answer
        writer.transport.abort()


async def test_expect_continue_is_answered_at_once() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=await request.read())

    async with backend(answer) as target, proxied(target) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert (
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
            == b"HTTP/1.1 100 Continue\r\n\r\n"
        )
        writer.write(b"abc")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert b" 200 " in head
        assert await reader.readexactly(3) == b"abc"
        writer.close()


async def test_a_browser_that_goes_away_ends_the_request_at_the_backend() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    async with backend(hang) as target, proxied(target) as address:
        _, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asyncio.wait_for(begun.wait(), PATIENCE)
        writer.transport.abort()
        await asyncio.wait_for(ended.wait(), PATIENCE)


async def test_a_backend_that_breaks_off_shows_as_a_broken_answer() -> None:
    async def breaks(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 1000
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with backend(breaks) as target, proxied(target) as address, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            async with session.get(address) as got:
                await got.read()
        # and the next request is answered
        with pytest.raises(aiohttp.ClientError):
            async with session.get(address) as got:
                await got.read()


async def test_a_backend_on_a_unix_socket_answers(tmp_path: Path) -> None:
    async with backend(_tells, unix=tmp_path / "b.sock") as target, proxied(target) as address:
        assert (await _told(address, "/x"))["path"] == "/x"


async def test_a_dead_backend_is_the_hubs_503_page() -> None:
    async def hub_page(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=f"page of the hub for {request.raw_path}", content_type="text/html")

    async with backend(hub_page) as hub_target:
        hub = SimpleNamespace(host=hub_target, base_url="/hub/")
        async with proxied(f"http://127.0.0.1:{_port()}", hub=hub) as address:
            async with aiohttp.ClientSession() as session, session.get(address + "/user/ann/?<x>") as got:
                assert got.status == 503
                assert "page of the hub for /hub/error/503?url=%2Fuser%2Fann%2F" in await got.text()


async def test_no_route_is_404_in_plain_words_without_a_hub() -> None:
    async with proxied() as address, aiohttp.ClientSession() as session, session.get(address) as got:
        assert got.status == 404
        assert "404 Not Found" in await got.text()


class _Echo(tornado.websocket.WebSocketHandler):
    closed: list[tuple[int | None, str | None]]

    def initialize(self, closed: list[tuple[int | None, str | None]]) -> None:
        self.closed = closed

    def check_origin(self, origin: str) -> bool:
        return True

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return "v1.kernel" if "v1.kernel" in subprotocols else None

    async def on_message(self, message: str | bytes) -> None:
        if message == "bye":
            self.close(4001, "as you wish")
        else:
            await self.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        self.closed.append((self.close_code, self.close_reason))


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[tuple[str, list[tuple[int | None, str | None]]]]:
    closed: list[tuple[int | None, str | None]] = []
    app = tornado.web.Application(
        [(r"/ws", _Echo, {"closed": closed})], websocket_max_message_size=64 << 20, websocket_ping_interval=0
    )
    server = tornado.httpserver.HTTPServer(app)
    sockets = tornado.netutil.bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}", closed
    finally:
        server.stop()
        await server.close_all_connections()


async def test_a_websocket_passes_text_bytes_and_the_protocol() -> None:
    async with echo() as (target, _), proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.ws_connect(
            address + "/ws", protocols=("other", "v1.kernel"), max_msg_size=0
        ) as ws:
            assert ws.protocol == "v1.kernel"
            await ws.send_str("häh")
            assert await ws.receive_str(timeout=PATIENCE) == "häh"
            await ws.send_bytes(b"\0" * (20 << 20))
            assert len(await ws.receive_bytes(timeout=PATIENCE)) == 20 << 20


async def test_a_ping_reaches_the_other_end() -> None:
    async with echo() as (target, _), proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.ws_connect(address + "/ws", autoping=False) as ws:
            await ws.ping(b"mark")
            message = await ws.receive(timeout=PATIENCE)
            assert (message.type, bytes(message.data)) == (aiohttp.WSMsgType.PONG, b"mark")


async def test_close_codes_pass_both_ways() -> None:
    async with echo() as (target, closed), proxied(target) as address, aiohttp.ClientSession() as session:
        async with session.ws_connect(address + "/ws", autoclose=False) as ws:
            await ws.send_str("bye")
            message = await ws.receive(timeout=PATIENCE)
            assert (message.type, message.data, message.extra) == (
                aiohttp.WSMsgType.CLOSE,
                4001,
                "as you wish",
            )
            await ws.close(code=4001)
        async with session.ws_connect(address + "/ws") as ws:
            await ws.close(code=4321, message=b"enough")
        await _until(lambda: (4321, "enough") in closed)


async def test_a_websocket_that_breaks_off_is_closed_at_the_other_end() -> None:
    async with echo() as (target, closed), proxied(target) as address, aiohttp.ClientSession() as session:
        ws = await session.ws_connect(address + "/ws")
        await ws.send_str("x")
        assert await ws.receive_str(timeout=PATIENCE) == "x"
        ws._response.connection.transport.abort()
        await _until(lambda: bool(closed))
        await ws.close()


async def test_a_refused_websocket_keeps_its_status() -> None:
    async with echo() as (target, _), proxied(target) as address, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await session.ws_connect(address + "/nothing-there")
        assert refusal.value.status == 404


async def test_a_taken_port_is_an_error_of_start() -> None:
    async with backend(_tells) as target:
        proxy = EmbeddedProxy(public_url=target)
        with pytest.raises(OSError, match="in use"):
            await proxy.start()
        await proxy.stop()


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():
            await asyncio.sleep(0.01)
