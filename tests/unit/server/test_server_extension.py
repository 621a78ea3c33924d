from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.server.fake_agent import GIB, FakeAgent, problem
from tests.unit.server.jupyter_process import TOKEN, Jupyter

SLOT = "gaia/api/slot"
EVENTS = "gaia/api/slot/events"


def until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextmanager
def stream(server: Jupyter) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """Open the event stream and iterate over (event, data)."""
    with server.open("GET", EVENTS, Authorization=f"token {TOKEN}") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/event-stream"
        yield _events(response)


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for raw in response:
        line = raw.decode().strip()
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            yield name, json.loads(line[5:])


def test_the_slot_comes_with_its_generation_as_etag(server: Jupyter, agent: FakeAgent) -> None:
    answer = server.token("GET", SLOT)
    assert answer.status == 200
    assert answer.json == agent.slot
    assert answer.headers["Etag"] == '"1"'
    assert answer.headers["Allow"] == "GET, PATCH"
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_slot_of_the_same_generation_is_still_sent_whole(server: Jupyter, agent: FakeAgent) -> None:
    answer = server.token("GET", SLOT, If_None_Match='"1"')
    assert answer.status == 200
    assert answer.json["used"] == agent.slot["used"]


def test_a_resize_passes_amounts_and_generation_on(server: Jupyter, agent: FakeAgent) -> None:
    answer = server.token("PATCH", SLOT, {"memory": 8 * GIB, "cores": 50}, If_Match='"1"')
    assert answer.status == 200
    assert answer.json["state"] == "applied"
    assert answer.json["slot"]["granted"] == {"memory": 8 * GIB, "cores": 50}  # type: ignore[index]
    assert answer.headers["Etag"] == '"2"'
    method, path, headers, body = agent.requests[-1]
    assert (method, path, body) == ("PATCH", "/v1/slot", {"memory": 8 * GIB, "cores": 50})
    assert headers["If-Match"] == '"1"'


def test_one_amount_alone_leaves_the_other_out(server: Jupyter, agent: FakeAgent) -> None:
    assert server.token("PATCH", SLOT, {"cores": 50}).status == 200
    _, _, headers, body = agent.requests[-1]
    assert body == {"cores": 50}
    assert "If-Match" not in headers


def test_a_generation_that_a_proxy_marked_as_weak_still_counts(server: Jupyter, agent: FakeAgent) -> None:
    assert server.token("PATCH", SLOT, {"memory": 8 * GIB}, If_Match='W/"1"').status == 200
    assert agent.requests[-1][2]["If-Match"] == '"1"'


@pytest.mark.parametrize("path", [SLOT, EVENTS])
def test_who_is_not_signed_in_sees_nothing(server: Jupyter, agent: FakeAgent, path: str) -> None:
    assert server.ask("GET", path).status == 403
    assert server.ask("PATCH", SLOT, {"memory": 8 * GIB}).status == 403
    assert agent.requests == []


def test_a_browser_needs_the_xsrf_header_to_resize(server: Jupyter, agent: FakeAgent) -> None:
    answer = server.browser("PATCH", SLOT, {"memory": 8 * GIB})
    assert answer.status == 403
    assert agent.requests == []
    xsrf = server.cookies["_xsrf"]
    assert server.browser("PATCH", SLOT, {"memory": 8 * GIB}, X_XSRFToken="of another page").status == 403
    assert agent.requests == []
    assert server.browser("PATCH", SLOT, {"memory": 8 * GIB}, X_XSRFToken=xsrf).status == 200


def test_another_site_cannot_resize(server: Jupyter, agent: FakeAgent) -> None:
    server.browser("GET", SLOT)
    answer = server.browser(
        "PATCH", SLOT, {"memory": 8 * GIB}, X_XSRFToken=server.cookies["_xsrf"], Origin="http://evil.example"
    )
    assert answer.status in (403, 404)
    assert [request for request in agent.requests if request[0] == "PATCH"] == []


def test_a_read_only_user_looks_but_does_not_resize(read_only_server: Jupyter, agent: FakeAgent) -> None:
    looked = read_only_server.token("GET", SLOT)
    assert looked.status == 200
    assert looked.headers["Allow"] == "GET"
    answer = read_only_server.token("PATCH", SLOT, {"memory": 8 * GIB})
    assert answer.status == 403
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["code"] == "forbidden"
    assert agent.slot["granted"]["memory"] == 4 * GIB
    with stream(read_only_server) as events:
        assert next(events)[0] == "slot"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "card_full"), (409, "over_maximum"), (422, "invalid_amount"), (404, "no_such_slot"),
        (412, "stale"), (429, "too_many_requests"), (503, "unavailable"), (400, "bad_request"),
    ],
)  # fmt: skip
def test_refusals_of_the_agent_pass_through(
    server: Jupyter, agent: FakeAgent, status: int, code: str
) -> None:
    offer = {"memory": 11 * GIB, "cores": 25}
    said = problem(status, code, "A sentence with 11 GiB in it.", best_offer=offer)
    agent.answer = (status, said)
    answer = server.token("PATCH", SLOT, {"memory": 12 * GIB})
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json == said


def test_a_stale_generation_brings_the_values_of_now(server: Jupyter, agent: FakeAgent) -> None:
    agent.set(memory=6)
    answer = server.token("PATCH", SLOT, {"memory": 8 * GIB}, If_Match='"1"')
    assert answer.status == 412
    assert answer.json["current"] == agent.slot
    assert answer.headers["Etag"] == '"2"'


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"8", b'"8GiB"', b'{"memory": NaN}', b'{"limit": 8}', b"\xff\xfe", b'{"cards": 5}'],
)
def test_a_body_that_is_no_resize_is_refused_in_words(server: Jupyter, agent: FakeAgent, body: bytes) -> None:
    answer = server.token("PATCH", SLOT, body)
    assert answer.status == 400
    assert answer.json["code"] == "bad_request"
    assert '{"memory": "8GiB", "cores": 50}' in str(answer.json["detail"])
    assert agent.requests == []


@pytest.mark.parametrize("header", ["7", '"x"', '"1", "2"', '"-1"', '"1\t"', '"' + "9" * 30 + '"'])
def test_an_if_match_that_is_no_generation_is_refused(server: Jupyter, agent: FakeAgent, header: str) -> None:
    answer = server.token("PATCH", SLOT, {"memory": 8 * GIB}, If_Match=header)
    assert answer.status == 400
    assert agent.requests == []


def test_a_body_over_64_kib_is_refused(server: Jupyter, agent: FakeAgent) -> None:
    fits = json.dumps({"memory": 8 * GIB}).encode().ljust(64 << 10)
    assert server.token("PATCH", SLOT, fits + b" ").status == 413
    assert agent.requests == []
    assert server.token("PATCH", SLOT, fits).status == 200


def test_a_server_without_a_slice_says_so(bare_server: Jupyter) -> None:
    for method, path in (("GET", SLOT), ("PATCH", SLOT), ("GET", EVENTS)):
        answer = bare_server.token(method, path, {"cores": 5} if method == "PATCH" else None)
        assert answer.status == 404
        assert answer.json["code"] == "no_such_slot"
        assert str(answer.json["detail"]).startswith("This server has no slice")


def test_an_agent_that_is_away_is_told_and_forgiven(server: Jupyter, agent: FakeAgent) -> None:
    agent.stop()
    for method, body in (("GET", None), ("PATCH", {"cores": 5})):
        answer = server.token(method, SLOT, body)
        assert answer.status == 503
        assert answer.json["code"] == "unavailable"
        assert "does not answer" in str(answer.json["detail"])
        assert str(agent.path) not in answer.text
    agent.start()
    assert server.token("GET", SLOT).status == 200


def test_changes_arrive_as_events(server: Jupyter, agent: FakeAgent) -> None:
    with stream(server) as events:
        assert next(events) == ("slot", agent.slot)
        agent.set(memory=8)
        assert next(events) == ("slot", agent.slot)


def test_a_stream_outlives_the_agent(server: Jupyter, agent: FakeAgent) -> None:
    with stream(server) as events:
        assert next(events)[0] == "slot"
        agent.stop()
        name, said = next(events)
        assert (name, said["code"]) == ("problem", "unavailable")
        agent.start()
        assert ("slot", agent.slot) == next(event for event in events if event[0] == "slot")


def test_many_tabs_share_one_stream_that_ends_with_the_last(server: Jupyter, agent: FakeAgent) -> None:
    until(lambda: agent.streams == 0, "a stream of an earlier test is still open")
    with stream(server) as first, stream(server) as second:
        assert next(first) == next(second) == ("slot", agent.slot)
        assert agent.streams == 1
        agent.set(memory=8)
        assert next(first) == next(second) == ("slot", agent.slot)
    until(lambda: agent.streams == 0, "nobody looks, but the agent's stream is open")


def test_looking_is_no_activity_and_resizing_is(server: Jupyter, agent: FakeAgent) -> None:
    def last_activity() -> str:
        return str(server.token("GET", "api/status?no_track_activity=1").json["last_activity"])

    before = last_activity()
    server.token("GET", SLOT)
    with stream(server) as events:
        next(events)
    assert last_activity() == before
    server.token("PATCH", SLOT, {"memory": 8 * GIB})
    assert last_activity() > before
