from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia_hub.panel import Panel, widget
from gaia_plugin.errors import Code, Refusal
from tests.unit.server.fake_agent import GIB, FakeAgent, problem

PANEL = Path(widget.__file__).parent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    agent = FakeAgent(tmp_path / "agent.sock")
    agent.start()
    yield agent
    agent.stop()


def asked(panel: Panel, **question: Any) -> dict[str, Any]:
    """Send `question` as the page does and return what the kernel sends back."""
    answers: list[dict[str, Any]] = []
    panel.send = answers.append
    panel._heard(panel, {"id": 7, **question}, [])
    (answer,) = answers
    assert answer["id"] == 7
    sent: dict[str, Any] = json.loads(json.dumps(answer))
    return sent


def test_the_slot_can_be_read_and_resized_from_python(agent: FakeAgent) -> None:
    panel = Panel(agent.path)
    assert panel.slot.granted.memory == 4 * GIB
    agent.answer = (200, {"state": "applied", "message": "The slice is now 8 GiB.", "slot": agent.slot})
    assert panel.resize(memory="8GiB").message == "The slice is now 8 GiB."
    assert agent.requests[-1][3] == {"memory": "8GiB"}
    panel.resize(cores=50)
    assert agent.requests[-1][3] == {"cores": 50}


def test_a_refusal_names_what_would_work(agent: FakeAgent) -> None:
    with pytest.raises(Refusal, match=r"up to 11.5 GiB") as refused:
        Panel(agent.path).resize(memory=14 * GIB)
    assert refused.value.code is Code.CARD_FULL
    assert refused.value.best_memory == int(11.5 * GIB)


def test_without_a_slot_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "slot_socket", lambda: None)
    panel = Panel()
    assert panel._has_slot is False
    with pytest.raises(Refusal, match="This server has no slice") as refused:
        _ = panel.slot
    assert refused.value.code is Code.NO_SUCH_SLOT
    answer = asked(panel, method="GET")
    assert (answer["status"], answer["body"]["code"]) == (404, "no_such_slot")


def test_the_environment_names_the_slot(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_SLOT_SOCKET", str(agent.path))
    panel = Panel()
    assert panel._has_slot is True
    assert panel.slot.slot == "alice"


def test_the_page_can_ask_the_kernel(agent: FakeAgent) -> None:
    panel = Panel(agent.path)
    assert asked(panel, method="GET") == {"id": 7, "status": 200, "body": agent.slot}
    answer = asked(panel, method="PATCH", wish={"memory": 8 * GIB}, generation=1)
    assert (answer["status"], answer["body"]["slot"]["granted"]["memory"]) == (200, 8 * GIB)
    assert agent.requests[-1][2]["If-Match"] == '"1"'


def test_refusals_reach_the_page_through_the_kernel(agent: FakeAgent) -> None:
    said = problem(429, "too_many_requests", "Wait a moment.", best_offer={"memory": 4 * GIB, "cores": 5})
    agent.answer = (429, said)
    answer = asked(Panel(agent.path), method="PATCH", wish={"cores": 5}, generation=1)
    assert answer["status"] == 429
    assert {name: value for name, value in answer["body"].items() if value is not None} == said


def test_an_agent_that_is_away_is_told_to_the_page(agent: FakeAgent) -> None:
    panel = Panel(agent.path)
    agent.stop()
    answer = asked(panel, method="GET")
    assert (answer["status"], answer["body"]["code"]) == (503, "unavailable")
    assert str(agent.path) not in answer["body"]["detail"]


@pytest.mark.parametrize("name", ["source.js", "panel.js", "panel.css"])
def test_the_page_loads_nothing_from_elsewhere(name: str) -> None:
    text = (PANEL / name).read_text()
    for word in ("http:", "https:", "import ", "import(", "@import", "url(", "innerHTML", "eval("):
        assert word not in text, word
