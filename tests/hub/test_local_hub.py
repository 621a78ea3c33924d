"""The embedded hub as a real process, with real single-user servers, over HTTP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from bs4 import BeautifulSoup

from gaia_hub.embedded import processes
from gaia_hub.local import MARK
from gaia_plugin.api.client import NodeClient
from gaia_plugin.api.models import NewSlot
from tests.hub.hub_fake_agent import FakeAgent
from tests.hub.hub_running import (
    PATIENCE,
    Hub,
    Person,
    environment,
    error_on,
    server_pid,
    server_processes,
    start_kernel,
    went_by,
)
from tests.support.demo import until


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path_factory.mktemp("state") / "sim" / "operator.sock") as agent:
        yield agent


@pytest.fixture(scope="module")
def hub(agent: FakeAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    # The hub of the tests inherits what a hub inside a slot would: none of it may reach a server.
    os.environ["LD_LIBRARY_PATH"] = str(agent.socket.parent / "slots" / "outer" / "lib")
    try:
        with Hub(tmp_path_factory.mktemp("hub"), agent.socket) as hub:
            yield hub
    finally:
        del os.environ["LD_LIBRARY_PATH"]


def test_a_server_runs_in_its_slice_and_gives_it_back(hub: Hub, agent: FakeAgent) -> None:
    ann = Person(hub.url, "ann")
    page = ann.page()
    assert "Choose your slice of a GPU" in page.text
    agent.node.grants.clear()  # the start waits until somebody listens to it
    try:
        answer = ann.submit(profile="small", memory_gib="4", cores="25")
        assert went_by(answer, "/hub/spawn-pending/ann")
        with ann.api("GET", "/users/ann/server/progress", stream=True) as progress:
            agent.node.grants.set()
            told = "".join(chunk.decode() for chunk in progress.iter_content(None))
    finally:
        agent.node.grants.set()
    assert "Your slice: 4 GiB and 25 % on card 0 (NVIDIA Sim 24GB)." in told
    ann.wait_ready()
    assert [(slot.owner, slot.granted.cores) for slot in agent.node.slots.values()] == [("ann", 25)]

    inside = environment(server_pid(hub.homes, ann))
    assert inside["LD_LIBRARY_PATH"] == str(agent.socket.parent / "slots" / "ann" / "lib")
    assert inside["CUDA_VISIBLE_DEVICES"] == "GPU-00000000"
    assert inside["HOME"] == str(hub.homes / "ann")
    lab = ann.page("/user/ann/lab")
    assert lab.status_code == 200
    assert "jupyterlab" in lab.text.lower()

    ann.stop()
    assert agent.node.slots == {}
    assert until(lambda: not server_processes(hub.homes, ann))

    # The next server has nothing of this one.
    answer = ann.submit(profile="none")
    assert went_by(answer, "/hub/spawn-pending/ann")
    ann.wait_ready()
    inside = environment(server_pid(hub.homes, ann))
    assert "LD_LIBRARY_PATH" not in inside
    assert "GAIA_SLOT_SOCKET" not in inside
    assert (inside["CUDA_VISIBLE_DEVICES"], inside["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert agent.node.slots == {}
    ann.stop()


def test_a_killed_server_loses_its_kernels_and_its_slice(hub: Hub, agent: FakeAgent) -> None:
    kim = Person(hub.url, "kim")
    kim.submit(profile="medium")
    kim.wait_ready()
    kernel = start_kernel(hub.homes, kim)
    os.kill(server_pid(hub.homes, kim), signal.SIGKILL)
    until(lambda: not agent.node.slots)
    until(lambda: not processes.is_running(kernel))
    until(lambda: not kim.server())
    dead = kim.page("/user/kim/lab")
    assert "not running" in dead.text


def test_who_asks_for_more_than_is_free_hears_how_much_that_is(hub: Hub, agent: FakeAgent) -> None:
    client = NodeClient(agent.socket)
    taken = [client.make(NewSlot(owner=f"x{n}", memory="20GiB", cores=40)).slot.slot for n in range(2)]
    try:
        bob = Person(hub.url, "bob")
        soup = BeautifulSoup(bob.page().text, "html5lib")
        off = soup.select_one("#gaia-option-medium")
        assert off.has_attr("disabled")
        assert "Only 3.5 GiB" in soup.find(id=off["aria-describedby"]).get_text()
        for _ in range(6):
            answer = bob.submit(profile="own", memory_gib="8", cores="25")
            assert (answer.status_code, error_on(answer)) == (
                409,
                "Only 3.5 GiB and 60 % are free on one card.",
            )
        for _ in range(6):
            refused = bob.api("POST", "/users/bob/server", {"profile": "medium"})
            assert (refused.status_code, refused.json()["message"]) == (
                409,
                "Only 3.5 GiB and 60 % are free on one card.",
            )
        again = BeautifulSoup(answer.text, "html5lib")
        assert again.find(id="gaia-memory")["value"] == "8"
        assert again.select_one("input[type=radio][checked]")["value"] == "own"
    finally:
        for slot in taken:
            client.release(slot)
    assert requests.get(f"{hub.url}/hub/health", timeout=PATIENCE).status_code == 200
    assert hub.process.poll() is None
    assert "consecutive spawns failed" not in hub.log.read_text()


BAD = [
    ({"profile": "huge"}, "There is no profile 'huge'"),
    ({"profile": "small\n"}, r"There is no profile 'small\n'"),
    ({"profile": "own", "memory": "8\n", "cores": "25"}, r"'8\n' is not an amount"),
    ({"profile": "own", "memory": "0GiB", "cores": "25"}, "more than zero"),
    ({"profile": "own", "memory": "-1GiB", "cores": "25"}, "is not an amount"),
    ({"profile": "own", "memory": "8XB", "cores": "25"}, "the unit is unknown"),
    ({"profile": "own", "memory": "8GiB", "cores": "0"}, "is not an amount"),
    ({"profile": "own", "memory": "9999999TiB", "cores": "1"}, "no card is that large"),
    ({"profile": "<script>alert(1)</script>"}, "There is no profile '<script>alert(1)</script>'"),
    ({"image": "x"}, "'image' is not an option"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_options_are_refused_by_query_and_by_rest(hub: Hub, options: dict[str, str], words: str) -> None:
    mal = Person(hub.url, "mal")
    page = mal.page("/hub/spawn", **options)
    assert page.status_code in (400, 422)
    assert words in error_on(page)
    assert "<script>alert(1)" not in page.text
    refused = mal.api("POST", "/users/mal/server", options)
    assert refused.status_code in (400, 422)
    assert words in refused.json()["message"]
    assert not mal.server()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"profile": ["small"]}', "['small']"),
        ('{"profile": "own", "memory": NaN, "cores": 1}', "nan is not an amount"),
        ('{"profile": "own", "memory": 1e999, "cores": 1}', "inf is not an amount"),
        ('{"profile": "own", "memory": ["8GiB"], "cores": 1}', "is not an amount"),
        ('{"user_options": {"profile": "own", "memory": true, "cores": 1}}', "True is not an amount"),
        ('{"user_options": {"profile": "own", "memory": "1GiB", "cores": -1}}', "-1 is not an amount"),
    ],
)
def test_bad_json_options_are_refused_and_forgotten(hub: Hub, raw: str, words: str) -> None:
    zoe = Person(hub.url, "zoe")
    zoe.api("GET", "/users/zoe")
    refused = requests.post(
        f"{hub.url}/hub/api/users/zoe/server",
        data=raw,
        headers={"Authorization": f"token {zoe.token}", "Content-Type": "application/json"},
        timeout=PATIENCE,
    )
    assert refused.status_code == 422
    assert words in refused.json()["message"]
    stored = zoe.api("GET", "/users/zoe?include_stopped_servers=1").json()["servers"]
    assert stored.get("", {}).get("user_options") in (None, {})


def test_a_bad_form_says_why_and_is_shown_again(hub: Hub) -> None:
    mal = Person(hub.url, "mal")
    page = mal.submit(profile="own", memory_gib="8\n9", cores="25")
    assert page.status_code == 422
    assert "is not a number of GiB" in error_on(page)
    page = mal.submit(memory_gib="8")
    assert (page.status_code, error_on(page)) == (400, "Choose one of the options.")
    page = mal.submit(profile="huge", memory_gib="8", cores="25")
    assert page.status_code == 422
    assert "There is no profile 'huge'" in error_on(page)
    assert not mal.server()


def test_a_start_from_a_query_works(hub: Hub, agent: FakeAgent) -> None:
    query = Person(hub.url, "query")
    answer = query.page("/hub/spawn", **{"opt-profile": "own", "opt-memory": "1.5GiB", "opt-cores": "7"})
    assert went_by(answer, "/hub/spawn-pending/query")
    query.wait_ready()
    own = {"profile": "own", "memory": "1536MiB", "cores": 7, "compute": "hard"}
    assert query.server()["user_options"] == own
    assert [slot.granted.cores for slot in agent.node.slots.values()] == [7]
    query.stop()


def test_a_slot_left_over_from_before_does_not_block_the_next_server(hub: Hub, agent: FakeAgent) -> None:
    lee = Person(hub.url, "lee")
    NodeClient(agent.socket).make(NewSlot(owner="lee", memory="1GiB", cores=1))
    lee.submit(profile="small")
    lee.wait_ready()
    assert [slot.granted.cores for slot in agent.node.slots.values()] == [25]
    lee.stop()


def test_with_the_agent_away_only_no_gpu_can_start(tmp_path: Path) -> None:
    with Hub(tmp_path / "hub", tmp_path / "nobody" / "operator.sock") as hub:
        ann = Person(hub.url, "ann")
        soup = BeautifulSoup(ann.page().text, "html5lib")
        assert "not answering" in soup.select_one(".gaia-notice").get_text()
        enabled = soup.select("input[type=radio]:not([disabled])")
        assert [field["value"] for field in enabled] == ["none"]
        page = ann.submit(profile="small")
        assert page.status_code == 503
        assert "only a server without a GPU can start" in error_on(page)
        ann.submit(profile="none")
        ann.wait_ready()
        kernel = start_kernel(hub.homes, ann)
        server = server_pid(hub.homes, ann)
        mark = environment(server)[MARK]
        hub.close()
        assert hub.process.returncode == 0
        assert processes.marked(MARK, mark) == []
        assert not processes.is_running(kernel)
