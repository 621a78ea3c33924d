"""How often a socket may be asked, and what is answered when its slot ends in the middle."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gaia_plugin.api import models, pace, sockets
from gaia_plugin.api.app import make_app
from gaia_plugin.api.serve import Served, serve
from gaia_plugin.errors import Code, Refusal
from tests.unit.api.conftest import FakeNode, a_slot

SECONDS = 60.0


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("gaia", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock: socket.socket = sockets.connect(self._path, SECONDS)


@dataclass
class EndingNode(FakeNode):
    """A resize of it waits for `go_on`, and then the slot is gone."""

    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def resize(self, slot: str, wish: models.Resize, generation: int | None) -> models.Resized:
        self.waiting.set()
        await self.go_on.wait()
        return await super().resize(slot, wish, generation)


@dataclass
class Both:
    node: EndingNode
    served: dict[str, Served]

    def path(self, name: str) -> Path:
        return self.served[name].path


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    """Two slots and the operator."""
    node = EndingNode({name: a_slot(name) for name in ("alice", "bob")})
    served = {
        name: await serve(make_app(node, name), tmp_path / f"{name}.sock", limited=True)
        for name in node.known
    }
    served["operator"] = await serve(make_app(node), tmp_path / "operator.sock", limited=False)
    yield Both(node, served)
    for each in served.values():
        await each.close()


def ask_often(path: Path, what: str, times: int, others: tuple[tuple[Path, str], ...] = ()) -> Counter[int]:
    """Ask one connection often, and after each hundredth time each of `others` once."""
    connection = Connection(path)
    found: Counter[int] = Counter()
    for number in range(times):
        connection.request("GET", what)
        answer = connection.getresponse()
        body = answer.read()
        found[answer.status] += 1
        if answer.status == 429:
            assert answer.headers["Retry-After"] == "1"
            assert json.loads(body)["code"] == "too_many_requests"
        if number % 100 == 0:
            for other, path_there in others:
                assert ask_often(other, path_there, 1) == {200: 1}
    connection.close()
    return found


@pytest.mark.parametrize("what", ["/v1/slot", "/v1/nothing"])
async def test_a_thousand_requests_in_a_second_are_answered_a_hundred_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    of = pace.requests
    monkeypatch.setattr(pace, "requests", lambda: of(lambda: 0.0))  # all of it is in one second
    monkeypatch.setattr(pace, "LATE", 0.0)
    node = FakeNode({name: a_slot(name) for name in ("alice", "bob")})
    served = [
        await serve(make_app(node, name), tmp_path / f"{name}.sock", limited=True)
        for name in ("alice", "bob")
    ]
    served.append(await serve(make_app(node), tmp_path / "operator.sock", limited=False))
    alice, bob, operator = (each.path for each in served)
    others = ((bob, "/v1/slot"), (operator, "/v1/slots/alice"))
    found = await asyncio.to_thread(ask_often, alice, what, 1000, others)
    assert found == {200 if what == "/v1/slot" else 404: 100, 429: 900}
    assert await asyncio.to_thread(ask_often, operator, "/v1/slots/alice", 300) == {200: 300}
    for each in served:
        await each.close()


async def test_a_stream_of_events_is_refused_like_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = pace.requests
    monkeypatch.setattr(pace, "requests", lambda: of(lambda: 0.0))
    monkeypatch.setattr(pace, "REQUESTS_PER_SECOND", 1)
    served = await serve(make_app(FakeNode(), "alice"), tmp_path / "alice.sock", limited=True)
    assert await asyncio.to_thread(ask_often, served.path, "/v1/slot", 1) == {200: 1}
    assert await asyncio.to_thread(ask_often, served.path, "/v1/slot/events", 1) == {429: 1}
    await served.close()


def patched(path: Path) -> tuple[int, str]:
    """Resize and return status and code; (0, "") where the connection ended without an answer."""
    connection = Connection(path)
    try:
        connection.request("PATCH", "/v1/slot", b'{"memory": "8GiB"}')
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["code"]
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def read_events(path: Path, opened: threading.Event) -> bytes:
    connection = Connection(path)
    try:
        connection.request("GET", "/v1/slot/events")
        answer = connection.getresponse()
        opened.set()
        return answer.read()
    finally:
        connection.close()


async def stream_of(path: Path) -> asyncio.Task[bytes]:
    """Open a stream of events; return what it will have said by its end."""
    opened = threading.Event()
    reading = asyncio.create_task(asyncio.to_thread(read_events, path, opened))
    assert await asyncio.to_thread(opened.wait, SECONDS)
    return reading


async def test_what_is_under_way_when_the_slot_ends_is_still_answered(both: Both) -> None:
    resize = asyncio.create_task(asyncio.to_thread(patched, both.path("alice")))
    events = await stream_of(both.path("alice"))
    idle = Connection(both.path("alice"))
    await asyncio.to_thread(idle.request, "GET", "/v1/slot")
    assert (await asyncio.to_thread(idle.getresponse)).status == 200
    await both.node.waiting.wait()
    await both.node.release("alice")
    finished = asyncio.create_task(both.served["alice"].finish(SECONDS))
    assert (await events).endswith(b"event: gone\ndata: {}\n\n")
    assert not finished.done()
    both.node.go_on.set()
    assert await resize == (404, "no_such_slot")
    await finished
    assert both.served["alice"].connections == 0
    idle.close()
    assert await asyncio.to_thread(ask_often, both.path("bob"), "/v1/slot", 1) == {200: 1}


async def test_an_answer_that_never_comes_is_broken_off(both: Both) -> None:
    resize = asyncio.create_task(asyncio.to_thread(patched, both.path("alice")))
    await both.node.waiting.wait()
    await both.served["alice"].finish(0.05)
    assert (await resize)[0] in (0, 500)
    assert both.served["alice"].connections == 0


async def test_a_stream_that_cannot_go_on_does_not_say_that_the_slot_is_gone(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = await stream_of(both.path("alice"))
    first = await both.node.slot("alice")
    told = asyncio.Event()

    async def slot(name: str) -> models.Slot:
        if told.is_set():
            raise Refusal(Code.UNAVAILABLE, "The ledger cannot be read.")
        told.set()
        return first

    monkeypatch.setattr(both.node, "slot", slot)
    both.node.changed.set()
    body = await events
    assert b"event: gone" not in body
    assert b"event: slot" in body


async def test_a_change_overtaken_by_the_end_of_its_slot_is_told_that_it_has_ended(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resize(slot: str, wish: models.Resize, generation: int | None) -> models.Resized:
        del both.node.known[slot]
        raise Refusal(Code.STALE, "Another request changed this slot.")

    monkeypatch.setattr(both.node, "resize", resize)
    assert await asyncio.to_thread(patched, both.path("alice")) == (404, "no_such_slot")
