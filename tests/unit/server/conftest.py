from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.fake_agent import FakeAgent, slot
from tests.unit.server.jupyter_process import Jupyter, jupyter

READ_ONLY = """
from jupyter_server.auth import Authorizer

class ReadOnly(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return action == "read"

c.ServerApp.authorizer_class = ReadOnly
"""


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
def server(tmp_path_factory: pytest.TempPathFactory, shared_agent: FakeAgent) -> Iterator[Jupyter]:
    home = tmp_path_factory.mktemp("home")
    with jupyter(home, GAIA_SLOT_SOCKET=str(shared_agent.path)) as running:
        yield running


@pytest.fixture(scope="module")
def read_only_server(tmp_path_factory: pytest.TempPathFactory, shared_agent: FakeAgent) -> Iterator[Jupyter]:
    home = tmp_path_factory.mktemp("home")
    with jupyter(home, config=READ_ONLY, GAIA_SLOT_SOCKET=str(shared_agent.path)) as running:
        yield running


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    with jupyter(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"
