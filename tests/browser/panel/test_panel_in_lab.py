"""The panel in JupyterLab in a real Chromium, with an agent that is faked at the level of its protocol."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.axe import violations
from tests.browser.panel.lab import Lab, Panel
from tests.unit.server.fake_agent import GIB, FakeAgent, problem, slot

pytestmark = pytest.mark.browser

SERVER = "**/gaia/api/slot"
STREAM = "**/gaia/api/slot/events"


def until(lab: Lab, true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, what
        lab.page.wait_for_timeout(20)


def patches(agent: FakeAgent) -> list[tuple[Any, str]]:
    return [(body, headers["If-Match"]) for method, _, headers, body in agent.requests if method == "PATCH"]


def test_it_shows_the_slice_in_words_and_figures(lab: Lab, panel: Panel) -> None:
    for text in ("1.5 GiB used", "4 GiB granted", "11.5 GiB possible now", "16 GiB at most", "25 % granted"):
        expect(panel.root).to_contain_text(text)
    card = panel.root.get_by_text("Gaia Simulated GPU, card 0")
    expect(card).to_have_attribute("title", "GPU-11111111…")
    expect(panel.state).to_have_text("Applied")
    expect(panel.root.get_by_role("img").first).to_have_accessible_name(
        "Memory: 1.5 GiB used, 4 GiB granted, 11.5 GiB possible now, 16 GiB at most"
    )
    expect(panel.memory).to_have_value("4")
    expect(panel.apply).to_be_disabled()


def test_the_slice_grows_while_a_cell_runs(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    lab.run(1, wait=False)
    prompt = lab.page.locator(".jp-InputPrompt").nth(1)
    expect(prompt).to_have_text("[*]:")
    panel.memory.fill("8")
    panel.cores.fill("50")
    panel.apply.click()
    panel.says("The slice is now 8 GiB.")
    panel.figures("8 GiB granted")
    expect(panel.apply).to_be_disabled()
    assert patches(agent) == [({"memory": 8 * GIB, "cores": 50}, '"1"')]
    agent.set(memory=8, cores=50, used=7)
    panel.figures("7 GiB used")
    expect(prompt).to_have_text("[*]:")
    (lab.home / "stop").touch()
    expect(lab.page.get_by_text("the cell has ended", exact=True)).to_be_visible()


def test_a_refusal_offers_what_would_work(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    panel.memory.fill("14")
    panel.apply.click()
    panel.says("Only 7.5 GiB are free on this card; you can have up to 11.5 GiB in total.")
    expect(panel.offer).to_have_text("Use 11.5 GiB instead")
    panel.offer.click()
    panel.says("The slice is now 11.5 GiB.")
    expect(panel.offer).to_be_hidden()
    expect(panel.memory).to_have_value("11.5")
    assert agent.slot["granted"]["memory"] == int(11.5 * GIB)


def test_a_shrink_below_use_drains_and_says_how_much_to_free(
    lab: Lab, panel: Panel, agent: FakeAgent
) -> None:
    agent.set(used=3.5)
    panel.figures("3.5 GiB used")
    panel.memory.fill("2")
    panel.apply.click()
    panel.says("free 1.5 GiB")
    expect(panel.state).to_have_text("Draining, 1.5 GiB to free")
    agent.set(memory=2, used=2.5, held=2.5, state="draining")
    expect(panel.state).to_have_text("Draining, 512 MiB to free")
    agent.set(memory=2, used=1, state="applied")
    expect(panel.state).to_have_text("Applied")
    panel.says("Done: the memory is free, and the slice is 2 GiB.")


def test_an_agent_that_went_away_comes_back(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    agent.stop()
    expect(panel.state).to_have_text("Agent away")
    panel.says("does not answer")
    panel.memory.fill("8")
    panel.apply.click()
    panel.says("does not answer")
    expect(panel.memory).to_have_value("8")
    agent.start()
    panel.says("Connected again.")
    expect(panel.state).to_have_text("Applied")
    panel.apply.click()
    panel.says("The slice is now 8 GiB.")


def test_what_changed_elsewhere_is_shown_and_never_overwritten(
    lab: Lab, panel: Panel, agent: FakeAgent
) -> None:
    agent.set(memory=5)
    panel.says("The slice is 5 GiB and 25 % now.")
    expect(panel.memory).to_have_value("5")
    panel.memory.fill("8")
    agent.set(memory=6)
    panel.figures("6 GiB granted")
    expect(panel.memory).to_have_value("8")
    panel.apply.click()
    panel.says("changed elsewhere")
    expect(panel.memory).to_have_value("6")
    assert agent.slot["granted"]["memory"] == 6 * GIB


def test_a_change_of_use_alone_does_not_make_the_form_stale(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    panel.memory.fill("8")
    agent.set(used=2)
    panel.figures("2 GiB used")
    panel.apply.click()
    panel.says("The slice is now 8 GiB.")


def test_other_refusals_are_shown_as_they_are(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    sentence = "More than 5 changes in a second; try again in a moment."
    agent.answer = (429, problem(429, "too_many_requests", sentence))
    panel.memory.fill("8")
    panel.apply.click()
    panel.says(sentence)
    expect(panel.apply).to_be_enabled()
    agent.answer = None
    panel.apply.click()
    panel.says("The slice is now 8 GiB.")


@pytest.mark.parametrize("text", ["", "0", "-3"])
def test_what_is_no_amount_is_not_sent(lab: Lab, panel: Panel, agent: FakeAgent, text: str) -> None:
    panel.memory.fill(text)
    panel.apply.click()
    panel.says("Write the memory as a number of GiB, such as 8.")
    expect(panel.memory).to_be_focused()
    assert patches(agent) == []


def test_keys_alone_are_enough(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    panel.slider.focus()
    for _ in range(4):
        panel.slider.press("ArrowRight")
    expect(panel.memory).to_have_value("5")
    panel.slider.press("Tab")
    expect(panel.memory).to_be_focused()
    panel.memory.press("ArrowUp")
    expect(panel.memory).to_have_value("5.25")
    panel.memory.press("Enter")
    panel.says("The slice is now 5.25 GiB.")


def test_a_read_only_user_sees_the_slice_and_cannot_change_it(lab: Lab, agent: FakeAgent) -> None:
    def read_only(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "allow": "GET"})

    lab.page.route(SERVER, read_only)
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    panel.says("your access to this server is read-only")
    for control in (panel.memory, panel.slider, panel.cores, panel.apply):
        expect(control).to_be_disabled()
    assert violations(lab.page, ".gaia-panel") == []


def test_without_a_slice_one_sentence_is_left(lab: Lab, agent: FakeAgent) -> None:
    said = problem(404, "no_such_slot", "This server has no slice of a GPU.")
    lab.page.route(
        SERVER,
        lambda route: route.fulfill(
            status=404, body=json.dumps(said), content_type="application/problem+json"
        ),
    )
    lab.run(0)
    lab.clear()
    lab.run(3)
    panel = lab.panel()
    panel.says("This server has no slice of a GPU.")
    expect(panel.state).to_have_text("No slice")
    expect(panel.memory).to_be_hidden()
    expect(panel.apply).to_be_hidden()
    assert violations(lab.page, ".gaia-panel") == []


def test_without_a_server_extension_the_kernel_is_asked(lab: Lab, agent: FakeAgent) -> None:
    lab.page.route(
        SERVER, lambda route: route.fulfill(status=404, body="<h1>Not found</h1>", content_type="text/html")
    )
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    panel.memory.fill("14")
    panel.apply.click()
    expect(panel.offer).to_have_text("Use 11.5 GiB instead")
    panel.offer.click()
    panel.says("The slice is now 11.5 GiB.")
    agent.set(memory=11.5, used=9)
    panel.figures("9 GiB used")
    assert [line for line in lab.asked if line.startswith("PATCH")] == []


def test_a_kernel_that_is_busy_is_said_to_be_where_only_it_can_answer(lab: Lab, agent: FakeAgent) -> None:
    # a new Lab with a new kernel answers widgets beside the running cell; this is all the others
    lab.page.evaluate(
        "() => {window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".commsOverSubshells = 'disabled';}"
    )
    lab.page.route(SERVER, lambda route: route.fulfill(status=404, body="Not found"))
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    lab.run(1, wait=False)
    expect(panel.state).to_have_text("Kernel busy")
    (lab.home / "stop").touch()
    expect(panel.state).to_have_text("Applied")


def test_a_server_that_went_away_comes_back(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    lab.page.route("**/gaia/api/**", lambda route: route.abort())
    panel.memory.fill("8")
    panel.apply.click()
    panel.says("The Jupyter server does not answer at the moment.")
    lab.page.unroute_all()
    panel.apply.click()
    panel.says("The slice is now 8 GiB.")


def test_a_proxy_that_holds_events_back_is_no_hindrance(lab: Lab, agent: FakeAgent) -> None:
    lab.page.route(STREAM, lambda route: route.fulfill(status=200, body="", content_type="text/event-stream"))
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    agent.set(used=3)
    panel.figures("3 GiB used")


def test_panels_share_one_stream_that_ends_with_the_last(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    lab.run(2)
    second = lab.panel(1)
    second.figures("4 GiB granted")
    panel.memory.fill("8")
    panel.apply.click()
    second.figures("8 GiB granted")
    second.says("The slice is 8 GiB and 25 % now.")
    lab.run(2)
    lab.panel(1).figures("8 GiB granted")
    assert lab.asked.count("GET slot/events") == 1
    assert agent.streams == 1
    lab.clear()
    until(lab, lambda: agent.streams == 0, "no panel is left, but the stream is open")


def test_a_hidden_page_asks_nothing(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    turn = """hidden => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    until(lab, lambda: agent.streams == 1, "no stream")
    lab.page.evaluate(turn, True)
    until(lab, lambda: agent.streams == 0, "the page is hidden, but the stream is open")
    agent.set(used=3)
    lab.page.evaluate(turn, False)
    panel.figures("3 GiB used")


def test_names_are_text_and_never_markup(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    evil = "<img src=x onerror=\"document.title='hacked'\">"
    changed = slot(generation=2)
    changed["cards"][0]["name"] = changed["processes"][0]["name"] = evil
    agent.put(changed)
    expect(panel.root.get_by_text(f"{evil}, card 0")).to_be_visible()
    assert panel.root.locator("img").count() == 0
    agent.answer = (409, problem(409, "card_full", evil))
    panel.memory.fill("8")
    panel.apply.click()
    panel.says(evil)
    assert panel.root.locator("img").count() == 0


def test_compute_is_shown_as_used_of_what_is_allowed(lab: Lab, panel: Panel, agent: FakeAgent) -> None:
    expect(panel.root).to_contain_text("held as a ceiling (hard)")
    agent.set(busy=24.6)
    expect(panel.root).to_contain_text("25 % used")
    expect(panel.root.get_by_text("allowed while the card is idle")).to_have_count(0)
    agent.set(compute="elastic", busy=81, limit=90)
    expect(panel.root).to_contain_text("guaranteed, more when the card is idle (elastic)")
    expect(panel.root).to_contain_text("81 % used")
    expect(panel.root).to_contain_text("90 % allowed while the card is idle")


@pytest.fixture
def fresh(lab: Lab) -> Panel:
    """A panel on a page that remembers nothing of the minute before."""
    lab.page.evaluate("() => globalThis[Symbol.for('gaia_hub.panel/1')]?.clear()")
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    return panel


def test_the_last_minute_is_a_graph_and_the_same_in_words(lab: Lab, fresh: Panel, agent: FakeAgent) -> None:
    panel = fresh
    graphs = panel.root.locator(".gaia-minute svg")
    expect(graphs).to_have_count(2)
    agent.set(used=3, busy=20)
    memory = panel.root.get_by_role(
        "img", name="Memory in the last minute: 1.5 GiB to 3 GiB used, 4 GiB allowed"
    )
    expect(memory).to_be_visible()
    compute = panel.root.get_by_role("img", name="Compute in the last minute: 0 % to 20 % used, 25 % allowed")
    expect(compute).to_be_visible()
    agent.set(memory=8, used=3, compute="elastic", busy=70, limit=100)
    expect(panel.root.get_by_role("img", name="0 % to 70 % used, 100 % allowed")).to_be_visible()
    # the line of the limit is a step, and both shapes stay within the drawing
    line = graphs.nth(1).locator(".limit").get_attribute("d")
    heights = [float(point.partition(",")[2]) for point in line.replace("L", " ").replace("M", " ").split()]
    assert len(set(heights)) == 2
    assert all(0 < height < 44 for height in heights)


def test_a_graph_that_nobody_sees_does_not_move(lab: Lab, fresh: Panel, agent: FakeAgent) -> None:
    panel = fresh
    turn = """hidden => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    until(lab, lambda: agent.streams == 1, "no stream")
    area = panel.root.locator(".gaia-minute .used").first
    expect(area).to_have_attribute("d", re.compile("^M"))
    lab.page.evaluate(turn, True)
    drawn = """(panel, within) => new Promise(done => {
        const seen = new MutationObserver(() => done(true));
        seen.observe(panel.querySelector(".gaia-minute"), {subtree: true, attributes: true});
        setTimeout(() => done(false), within);
    })"""
    assert panel.root.evaluate(drawn, 2_500) is False
    lab.page.evaluate(turn, False)
    assert panel.root.evaluate(drawn, 60_000) is True
    # while it was hidden nothing was known: the graph has a gap there
    path = area.get_attribute("d")
    assert path.count("M") == 2


def test_an_agent_that_does_not_measure_has_no_compute_graph(lab: Lab, agent: FakeAgent) -> None:
    agent.put({**slot(), "time": None})
    # a new page, because the minute of the old one is remembered
    lab.page.evaluate("() => globalThis[Symbol.for('gaia_hub.panel/1')]?.clear()")
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    expect(panel.root.locator(".gaia-minute figure:visible")).to_have_count(1)
    expect(panel.root).to_contain_text("25 % granted")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_text_stands_out_in_both_themes(lab: Lab, panel: Panel, agent: FakeAgent, theme: str) -> None:
    lab.theme(theme)
    panel.memory.fill("14")
    panel.apply.click()
    expect(panel.offer).to_be_visible()
    for part in (
        "strong",
        ".gaia-cards",
        ".gaia-state",
        ".gaia-figures",
        "figcaption",
        ".gaia-said",
        ".gaia-apply",
        "summary",
    ):
        assert panel.contrast(part) >= 4.5, f"{part} in {theme}"
    lab.theme("JupyterLab Light")


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_in_any_state(lab: Lab, panel: Panel, agent: FakeAgent, theme: str) -> None:
    lab.theme(theme)
    try:
        assert violations(lab.page, ".gaia-panel") == []
        panel.memory.fill("14")
        panel.apply.click()
        expect(panel.offer).to_be_visible()
        assert violations(lab.page, ".gaia-panel") == []
        panel.memory.fill("0")
        assert violations(lab.page, ".gaia-panel") == []
        agent.set(memory=2, used=2.5, held=2.5, state="draining")
        expect(panel.state).to_have_text("Draining, 512 MiB to free")
        assert violations(lab.page, ".gaia-panel") == []
        agent.stop()
        expect(panel.state).to_have_text("Agent away")
        assert violations(lab.page, ".gaia-panel") == []
    finally:
        lab.theme("JupyterLab Light")


def test_axe_finds_what_is_planted(lab: Lab, panel: Panel) -> None:
    panel.root.evaluate("panel => panel.insertAdjacentHTML('beforeend', '<img src=\"data:,\"><input>')")
    assert {line.partition(":")[0] for line in violations(lab.page, ".gaia-panel")} == {"image-alt", "label"}
