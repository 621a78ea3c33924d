from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.panel.lab import BUSY_CELL, NO_SLICE_CELL, PANEL_CELL, Lab, Panel
from tests.unit.server.fake_agent import FakeAgent, slot
from tests.unit.server.jupyter_process import Jupyter, jupyter

OPTIONS = ("--LabApp.expose_app_in_browser=True",)
CONFIG = """
c.LabApp.news_url = None
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeAgent]:
    agent = FakeAgent(tmp_path_factory.mktemp("slot") / "agent.sock")
    yield agent
    agent.stop()


@pytest.fixture
def agent(shared_agent: FakeAgent) -> Iterator[FakeAgent]:
    shared_agent.slot = slot()
    shared_agent.answer = None
    shared_agent.requests.clear()
    shared_agent.start()
    yield shared_agent
    shared_agent.stop()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def server(home: Path, shared_agent: FakeAgent) -> Iterator[Jupyter]:
    slot_socket = str(shared_agent.path)
    with jupyter(home, *OPTIONS, module="jupyterlab", config=CONFIG, GAIA_SLOT_SOCKET=slot_socket) as running:
        yield running


@pytest.fixture(scope="module")
def opened(browser: Browser, server: Jupyter, home: Path) -> Iterator[Lab]:
    lab = Lab(browser, server, home, [PANEL_CELL, BUSY_CELL, PANEL_CELL, NO_SLICE_CELL])
    yield lab
    lab.close()


@pytest.fixture
def lab(opened: Lab, agent: FakeAgent) -> Iterator[Lab]:
    """The open notebook, without outputs; the page must stay free of errors and foreign requests."""
    opened.clear()
    (opened.home / "stop").unlink(missing_ok=True)
    yield opened
    (opened.home / "stop").touch()  # a cell that a failed test left running ends
    opened.page.unroute_all()
    assert opened.errors == []
    assert opened.foreign == []


@pytest.fixture
def panel(lab: Lab) -> Panel:
    """A panel that shows 1.5 GiB used of 4 GiB."""
    lab.run(0)
    panel = lab.panel()
    panel.figures("4 GiB granted")
    return panel
