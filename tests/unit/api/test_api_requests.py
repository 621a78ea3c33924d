"""What the two sockets answer, and what they refuse, at the level of bytes and of the client."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gaia_plugin.api import app, models, pace, serve, sockets
from gaia_plugin.api.client import ApiRefusal, SlotClient
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB


def ask(path: Path, request: bytes, *, shut: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Send raw bytes; return status, headers and body. Status 0: closed without an answer."""
    with sockets.connect(path, 60) as connection:
        connection.sendall(request)
        if shut:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    if not received:
        return 0, {}, b""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


def patch(path: Path, body: bytes, *more: str) -> tuple[int, dict[str, str], bytes]:
    head = ["PATCH /v1/slot HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *more]
    return ask(path, ("\r\n".join(head) + "\r\n\r\n").encode() + body)


def test_a_slot_is_read_with_its_generation_as_etag(api: Any) -> None:
    status, headers, body = ask(
        api.slot_socket, b"GET /v1/slot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert status == 200
    assert headers["etag"] == '"1"'
    assert json.loads(body)["slot"] == "alice"


def test_a_resize_answers_with_the_new_slot(api: Any) -> None:
    resized = api.slot.resize(memory="8GiB", cores=50)
    assert resized.state == "applied"
    assert resized.slot.granted.memory == 8 * GIB
    assert api.slot.slot().generation == 2


def test_a_stale_resize_brings_the_slot_as_it_stands(api: Any) -> None:
    api.slot.resize(memory="5GiB")
    with pytest.raises(ApiRefusal) as refused:
        api.slot.resize(memory="6GiB", generation=1)
    assert refused.value.code is Code.STALE
    assert refused.value.problem.status == 412
    assert refused.value.problem.current is not None
    assert refused.value.problem.current.generation == 2


def test_a_refusal_names_what_would_have_worked(api: Any) -> None:
    with pytest.raises(Refusal) as refused:
        api.slot.resize(memory="17GiB")
    assert refused.value.code is Code.OVER_MAXIMUM
    assert refused.value.best_memory == 16 * GIB


def test_problems_are_problem_details(api: Any) -> None:
    status, headers, body = patch(api.slot_socket, b'{"memory": "17GiB"}')
    assert status == 409
    assert headers["content-type"] == "application/problem+json"
    problem = json.loads(body)
    assert problem["code"] == "over_maximum"
    assert problem["best_offer"] == {"memory": 16 * GIB, "cores": 100}
    assert problem["status"] == 409
    assert problem["detail"] == "At most 16 GiB."


BAD_BODIES = [
    ("zero", b'{"memory": 0}', 422),
    ("negative", b'{"memory": -1}', 422),
    ("text with newline", b'{"memory": "8\\n"}', 422),
    ("text with unit and newline", b'{"memory": "8GiB\\n"}', 422),
    ("no unit", b'{"memory": "8"}', 422),
    ("unknown unit", b'{"memory": "8 bananas"}', 422),
    ("list", b'{"memory": ["8GiB"]}', 422),
    ("object", b'{"memory": {"GiB": 8}}', 422),
    ("boolean", b'{"memory": true}', 422),
    ("fraction", b'{"memory": 1.5e9}', 422),
    ("infinite by exponent", b'{"memory": 1e999}', 422),
    ("huge text", b'{"memory": "99999999999999TiB"}', 422),
    ("huge number", b'{"memory": 99999999999999999999}', 422),
    ("four thousand digits", b'{"memory": ' + b"9" * 4000 + b"}", 422),
    ("sixty thousand digits", b'{"memory": ' + b"9" * 60000 + b"}", 422),
    ("cores zero", b'{"memory": "8GiB", "cores": 0}', 422),
    ("cores text", b'{"memory": "8GiB", "cores": "many"}', 422),
    ("cores newline", b'{"memory": "8GiB", "cores": "8\\n"}', 422),
    ("NaN", b'{"memory": NaN}', 400),
    ("Infinity", b'{"memory": -Infinity}', 400),
    ("double key", b'{"memory": "4GiB", "memory": "8GiB"}', 400),
    ("double key inside", b'{"cards": {"a": {}, "a": {}}}', 400),
    ("unknown key", b'{"memory": "8GiB", "limit": 1}', 400),
    ("wrong type of cards", b'{"cards": [1]}', 400),
    ("a list", b'["8GiB"]', 400),
    ("null", b"null", 400),
    ("empty", b"", 400),
    ("not JSON", b"memory=8GiB", 400),
    ("cut off", b'{"memory": "8G', 400),
    ("two values", b'{"memory": "8GiB"} {}', 400),
    ("not UTF-8", b'{"memory": "\xff\xfe"}', 400),
    ("byte order mark", b'\xef\xbb\xbf{"memory": "8GiB"}', 400),
    ("deep lists", b"[" * 30000 + b"]" * 30000, 400),
    ("deep objects", b'{"a":' * 9000 + b"1" + b"}" * 9000, 400),
    ("deep and cut off", b"[" * 60000, 400),
]


@pytest.mark.parametrize(
    ("body", "expected"), [row[1:] for row in BAD_BODIES], ids=[r[0] for r in BAD_BODIES]
)
def test_a_bad_body_gets_a_sentence_and_changes_nothing(api: Any, body: bytes, expected: int) -> None:
    before = api.slot.slot()
    status, headers, answer = patch(api.slot_socket, body)
    assert status == expected
    assert headers["content-type"] == "application/problem+json"
    problem = json.loads(answer)
    assert problem["code"] in ("invalid_amount", "bad_request")
    assert problem["detail"].endswith(".")
    assert len(problem["detail"]) < 400
    assert api.node.asked == []
    assert api.slot.slot() == before


@pytest.mark.parametrize(
    "tag", ['"x"', "7", '""', 'W/"1"', '"1", "2"', '"-1"', '"' + "9" * 40 + '"', '"\u0661"']
)
def test_a_bad_if_match_is_refused(api: Any, tag: str) -> None:
    status, _, answer = patch(api.slot_socket, b'{"memory": "8GiB"}', f"If-Match: {tag}")
    assert status == 400
    assert json.loads(answer)["code"] == "bad_request"
    assert api.node.asked == []


@pytest.mark.parametrize("length", ["declared", "chunked"])
def test_a_body_over_64_kib_is_refused(api: Any, length: str) -> None:
    body = b'{"memory": "8GiB"' + b" " * (64 << 10) + b"}"
    if length == "declared":
        status, _, answer = patch(api.slot_socket, body)
    else:
        head = (
            b"PATCH /v1/slot HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        status, _, answer = ask(api.slot_socket, head + chunk)
    assert status == 413
    assert "64 KiB" in json.loads(answer)["detail"]
    assert api.node.asked == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /v1/slots", 404),
        ("GET /v1/cards", 404),
        ("GET /", 404),
        ("GET /v1/slot/..%2fcards", 404),
        ("GET /v1/%ff%00", 404),
        ("DELETE /v1/slot", 405),
        ("POST /v1/slot", 405),
        ("BREW /v1/slot", 405),
    ],
)
def test_a_slot_socket_knows_its_slot_and_nothing_else(api: Any, line: str, expected: int) -> None:
    status, headers, answer = ask(
        api.slot_socket, f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    )
    assert status == expected
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(answer)["code"] == "bad_request"


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all resizes of a slot fall into one second."""
    for name in ("requests", "resizes"):
        of = getattr(pace, name)
        monkeypatch.setattr(pace, name, lambda of=of: of(lambda: 0.0))


def test_more_than_five_resizes_a_second_are_refused(still_clock: None, api: Any) -> None:
    for _ in range(5):
        api.slot.resize(memory="8GiB")
    with pytest.raises(Refusal) as refused:
        api.slot.resize(memory="8GiB")
    assert refused.value.code is Code.TOO_MANY_REQUESTS
    assert api.operator.resize("alice", memory="9GiB").slot.granted.memory == 9 * GIB  # not the operator's


def test_the_rate_limit_forgets_after_a_second() -> None:
    now = 0.0
    limit = pace.RateLimit(5, "Wait.", lambda: now)
    for _ in range(5):
        limit.take()
    with pytest.raises(Refusal):
        limit.take()
    now = 1.0
    limit.take()


def test_the_ninth_connection_of_a_slot_is_told_so(api: Any) -> None:
    held = [sockets.connect(api.slot_socket, 60) for _ in range(8)]
    try:
        for connection in held:
            connection.sendall(b"GET /v1/slot HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        with pytest.raises(Refusal) as refused:
            api.slot.slot()
        assert "8 connections" in refused.value.sentence
        assert api.operator.slot("alice").slot == "alice"
    finally:
        for connection in held:
            connection.close()


def test_a_head_that_does_not_arrive_ends_the_connection(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEADER_TIMEOUT", 0.1)
    for start in (b"", b"GET /v1/slot HTTP/1.1\r\nHost: x\r\n"):
        with sockets.connect(api.slot_socket, 60) as connection, suppress(ConnectionError):
            connection.sendall(start)
            assert connection.recv(1000) == b""


def test_a_late_second_head_on_a_kept_connection_ends_it(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with sockets.connect(api.slot_socket, 60) as connection:
        connection.sendall(b"GET /v1/slot HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        monkeypatch.setattr(serve, "HEADER_TIMEOUT", 0.1)
        connection.sendall(b"GET /v1/slot HT")
        while connection.recv(65536):
            pass


NONSENSE = [
    b"\x00\x01\x02\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /v1/slot HTTP/1.1\r\n\r\n",
    b"PATCH /v1/slot HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"PATCH /v1/slot HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
    b"PATCH /v1/slot HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /v1/slot HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 700000 + b"\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("request_bytes", NONSENSE)
def test_what_is_not_http_ends_only_its_own_connection(api: Any, request_bytes: bytes) -> None:
    with sockets.connect(api.slot_socket, 60) as connection:
        received = b""
        with suppress(ConnectionError):  # it may be closed before all of it is sent
            connection.sendall(request_bytes)
            connection.shutdown(socket.SHUT_WR)
            received = connection.recv(65536)
    assert received == b"" or b" 4" in received.split(b"\r\n")[0]
    assert api.slot.slot().generation == 1


def test_a_thousand_bad_requests_stop_nothing(api: Any) -> None:
    bodies = [row[1] for row in BAD_BODIES if len(row[1]) < 1000]
    for number in range(1000):
        status, _, _ = patch(api.slot_socket, bodies[number % len(bodies)])
        assert status in (400, 422, 429)
    assert api.operator.slot("alice").generation == 1


def test_a_fault_inside_is_an_answer_not_an_end(api: Any, capsys: Any) -> None:
    api.node.fault = RuntimeError("broken")
    with pytest.raises(ApiRefusal) as refused:
        api.operator.cards()
    assert refused.value.problem.status == 500
    assert "broken" not in refused.value.sentence
    assert api.operator.health().slots == 1


def test_events_tell_every_change_and_the_end(api: Any) -> None:
    with api.slot.events() as stream:
        seen = iter(stream)
        assert next(seen).granted.memory == 4 * GIB
        api.slot.resize(memory="8GiB")
        assert next(seen).granted.memory == 8 * GIB
        api.operator.release("alice")
        assert list(seen) == []


def a_time(used: int) -> models.SlotTime:
    return models.SlotTime(guaranteed=250, limit=250, ceiling=250, used=used, throttled=0, cards=())


def test_what_is_only_measured_waits_for_the_next_look(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LOOK_EVERY", 3600.0)
    with api.slot.events() as stream:
        seen = iter(stream)
        first = next(seen)
        for used in range(1, 30):
            # the slot's memory is looked at whenever somebody wakes the stream
            api.node.known["alice"] = replace(first, time=a_time(used))
            api.node.changed.set()
        api.slot.resize(memory="8GiB")
        assert next(seen).granted.memory == 8 * GIB  # none of the measurements; the resize at once
        monkeypatch.setattr(app, "LOOK_EVERY", 0.01)
        api.slot.resize(memory="9GiB")  # wakes it from its hour
        latest = next(seen)
        assert latest.granted.memory == 9 * GIB
        api.node.known["alice"] = replace(latest, time=a_time(30))
        assert next(seen).time.used == 30


def test_an_unknown_mode_of_compute_is_a_sentence(api: Any) -> None:
    with pytest.raises(Refusal) as refused:
        api.operator._call(
            "POST", "/v1/slots", models.MadeSlot, {"owner": "x", "memory": "1GiB", "compute": "turbo"}
        )
    assert refused.value.code is Code.BAD_REQUEST
    assert "turbo" in refused.value.sentence
    assert api.node.asked == []


def test_a_stream_can_be_closed_from_another_thread(api: Any) -> None:
    stream = api.slot.events()
    seen: list[models.Slot] = []
    first = threading.Event()

    def read() -> None:
        for slot in stream:
            seen.append(slot)
            first.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert first.wait(60)
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(seen) == 1


def test_operators_make_own_fit_and_release(api: Any) -> None:
    operator = api.operator
    made = operator.make(models.NewSlot(owner="bob", memory="2GiB", cores=10))
    assert made.environment == {"A": "b"}
    assert operator.own("bob", 42).slot == "bob"
    assert [fit.fits for fit in operator.fit([models.NewSlot(owner="x", memory="1GiB")])] == [True]
    assert {slot.slot for slot in operator.slots()} == {"alice", "bob"}
    assert operator.resize("bob", memory="3GiB").slot.granted.memory == 3 * GIB
    assert operator.release("bob").state == "releasing"
    with pytest.raises(Refusal) as refused:
        operator.slot("bob")
    assert refused.value.code is Code.NO_SUCH_SLOT


@pytest.mark.parametrize("memory", [float("nan"), [1], object(), 10**30, "8\n"])
def test_the_client_passes_bad_amounts_on_or_refuses_them(api: Any, memory: object) -> None:
    with pytest.raises(Refusal) as refused:
        api.slot.resize(memory=memory)
    assert refused.value.code in (Code.BAD_REQUEST, Code.INVALID_AMOUNT)
    assert api.node.asked == []


def test_a_slot_name_with_odd_characters_reaches_the_agent_whole(api: Any) -> None:
    with pytest.raises(Refusal) as refused:
        api.operator.slot("a/b?c#d é")
    assert refused.value.code in (Code.NO_SUCH_SLOT, Code.BAD_REQUEST)


def test_nobody_answering_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        SlotClient(tmp_path / "agent.sock").slot()
    assert refused.value.code is Code.UNAVAILABLE
    assert "gaia doctor" in refused.value.sentence
