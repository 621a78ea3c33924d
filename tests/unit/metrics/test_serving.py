"""The page over TCP: one for all who ask, and no reader costs the agent more than a moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.metrics import serve as serving
from gaia_plugin.metrics.address import Address, listen
from gaia_plugin.metrics.collector import MEDIA_TYPE
from gaia_plugin.metrics.page import Late, Page, make_app
from gaia_plugin.metrics.serve import Exporter, serve, told, told_when_possible
from gaia_plugin.metrics.snapshot import Snapshot
from tests.unit.metrics.conftest import Told, full

HERE = Address("127.0.0.1", 0)


@dataclass
class Source:
    """Hands out snapshots, counts them, and can be slow or broken."""

    taken: int = 0
    fault: Exception | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go.set()

    async def take(self) -> Snapshot:
        self.taken += 1
        await self.go.wait()
        if self.fault is not None:
            raise self.fault
        return full()


async def until(so: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not so():
            await asyncio.sleep(0.01)


async def ask(port: int, request: str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[str, bytes]:
    """Return head and body of an answer; empty where the connection was ended without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.encode())
        async with asyncio.timeout(30):
            answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


@asynccontextmanager
async def exporter(source: Source, *, patience: float = 30.0, **limits: float) -> AsyncIterator[Exporter]:
    page = Page(source.take, fresh=3600.0, patience=patience)
    made = await serve(make_app(page), listen(HERE), **limits)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        await made.close()
        await page.close()


# -- what is answered


async def test_the_page_is_told() -> None:
    async with exporter(Source()) as made:
        head, body = await ask(made.port)
    assert head.startswith("HTTP/1.1 200 ")
    assert f"content-type: {MEDIA_TYPE}" in head
    assert "connection: close" in head
    assert Told.read(body).value("gaia_card_healthy") == 1


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"nothing here but /metrics"),
        ("GET /v1/slots HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"nothing here"),
        ("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabcd", 405, b"read with GET"),
        ("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"read with GET"),
        ("nonsense\r\n\r\n", 400, b""),
        ("GET /metrics HTTP/1.1\r\nX: " + "y" * 70000 + "\r\n\r\n", 400, b""),
    ],
)
async def test_nothing_else_is_there(request_: str, status: int, says: bytes) -> None:
    source = Source()
    async with exporter(source) as made:
        head, body = await ask(made.port, request_)
        assert head.split()[1:2] in (
            [str(status)],
            [],
        )  # a head too long may be cut off before it is answered
        assert says in body or not head
        assert source.taken == 0
        assert (await ask(made.port))[0].startswith("HTTP/1.1 200 ")


async def test_a_head_alone_can_be_asked_for() -> None:
    async with exporter(Source()) as made:
        head, body = await ask(made.port, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (head.split()[1], body) == ("200", b"")


# -- what it costs


async def test_a_hundred_at_once_are_one_page() -> None:
    source = Source()
    source.go.clear()
    async with exporter(source) as made:
        asking = [asyncio.create_task(ask(made.port)) for _ in range(100)]
        await until(lambda: made.connections == 100)
        source.go.set()
        answers = await asyncio.gather(*asking)
    assert {head.split()[1] for head, _ in answers} == {"200"}
    assert len({body for _, body in answers}) == 1
    assert source.taken == 1


async def test_a_page_is_made_anew_when_it_is_old() -> None:
    now, source = [0.0], Source()
    page = Page(source.take, fresh=1.0, clock=lambda: now[0])
    for now[0], taken in ((0.0, 1), (0.9, 1), (1.0, 2), (1.5, 2), (9.0, 3)):
        await page.text()
        assert source.taken == taken


async def test_an_agent_that_is_stuck_says_so_and_nothing_old() -> None:
    source = Source()
    now = [0.0]
    page = Page(source.take, fresh=1.0, clock=lambda: now[0])
    assert await page.text()
    page._patience = 0.05
    now[0] = 5.0
    source.go.clear()
    for _ in range(3):
        with pytest.raises(Late, match=r"has not told its state for 0\.05 seconds"):
            await page.text()
    assert source.taken == 2, "nothing piles up behind what is stuck"
    source.go.set()
    await until(lambda: page._making is not None and page._making.done())
    assert await page.text()
    await page.close()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Refusal(Code.UNAVAILABLE, "The ledger cannot be read."), b"The ledger cannot be read."),
        (Unusable("It is damaged."), b"It is damaged."),
        (RuntimeError("odd"), b"odd"),
    ],
)
async def test_a_fault_is_503_and_passes(fault: Exception, says: bytes) -> None:
    source = Source(fault=fault)
    async with exporter(source) as made:
        head, body = await ask(made.port)
        assert head.split()[1] == "503"
        assert says in body
        source.fault = None
        assert (await ask(made.port))[0].split()[1] == "200"


async def test_a_reader_that_gives_up_takes_nothing_from_the_others() -> None:
    source = Source()
    source.go.clear()
    async with exporter(source) as made:
        first, second = (asyncio.create_task(ask(made.port)) for _ in range(2))
        await until(lambda: made.connections == 2 and source.taken)
        first.cancel()
        await until(lambda: made.connections == 1)
        source.go.set()
        assert (await second)[0].split()[1] == "200"


async def test_more_than_there_may_be_are_turned_away() -> None:
    async with exporter(Source(), connections=4) as made:
        idle = [await asyncio.open_connection("127.0.0.1", made.port) for _ in range(4)]
        await until(lambda: made.connections == 4)
        assert await ask(made.port) == ("", b"")
        idle[0][1].close()
        await until(lambda: made.connections == 3)
        assert (await ask(made.port))[0].split()[1] == "200"
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_a_reader_that_does_nothing_is_ended(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    page = b"x" * (64 << 20)  # more than any socket's buffers take

    async def text(_: Page) -> bytes:
        return page

    monkeypatch.setattr(Page, "text", text)
    async with exporter(Source(), life=0.2) as made:
        with socket.socket() as lazy:
            lazy.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(lazy, ("127.0.0.1", made.port))
            await loop.sock_sendall(lazy, sent)
            await until(lambda: made.connections == 1)
            await until(lambda: made.connections == 0)


async def test_its_end_ends_all_readers() -> None:
    source = Source()
    source.go.clear()
    async with exporter(source) as made:
        asking = asyncio.create_task(ask(made.port))
        await until(lambda: source.taken)
        port = made.port
    assert await asking == ("", b"")
    with pytest.raises(OSError):  # noqa: PT011
        await asyncio.open_connection("127.0.0.1", port)


# -- where it is told


async def test_who_asks_for_an_address_that_is_taken_is_told() -> None:
    with listen(HERE) as other, pytest.raises(Unusable, match="Address already in use"):
        async with told(Page(Source().take), Address("127.0.0.1", other.getsockname()[1])):
            pass


async def test_a_node_waits_for_its_address() -> None:
    other = listen(HERE)
    port = other.getsockname()[1]
    with capture_logs() as logs:
        async with told_when_possible(Page(Source().take), Address("127.0.0.1", port), again=0.01):
            await until(lambda: logs)
            other.close()
            await until(lambda: any(line["event"] == "metrics" for line in logs))
            assert (await ask(port))[0].split()[1] == "200"
    waits = [line for line in logs if line["event"] == "no metrics yet"]
    assert len(waits) == 1, "said once, however often it is tried"
    assert "Address already in use" in waits[0]["why"]


async def test_a_fault_of_serving_is_not_the_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Address) -> socket.socket:
        raise RuntimeError("odd")

    monkeypatch.setattr(serving, "listen", broken)
    with capture_logs() as logs:
        async with told_when_possible(Page(Source().take), HERE, again=0.01):
            await until(lambda: len(logs) > 1)
    assert logs[0]["event"] == "metrics failed"
