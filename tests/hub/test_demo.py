"""`gaia demo` from the outside: what it prints, and that nothing of it stays behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_hub.embedded import processes
from gaia_plugin import paths
from gaia_plugin.api.client import NodeClient
from gaia_plugin.sim import probe
from tests.hub.hub_running import PASSWORD, Person, free_port, start_kernel
from tests.support.demo import until


class Demo:
    """`gaia demo` with a state of its own, in a session of its own."""

    def __init__(self, state: Path, *arguments: str, port: int | None = None) -> None:
        self.state, self.port = state, port or free_port()
        command = [sys.executable, "-m", "gaia_plugin.cli", "demo", "--port", str(self.port), "--no-open"]
        self.process = subprocess.Popen(
            [*command, "--password", PASSWORD, *arguments],
            env={**os.environ, "GAIA_STATE": str(state), "GAIA_TEST": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.told: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_open(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(line)
            if line.startswith("Control-C ends it."):
                return
        raise AssertionError("".join(self.told) + self.logs())

    def logs(self) -> str:
        return "".join(path.read_text() for path in self.state.glob("hub/*.log"))

    def all_pids(self) -> list[int]:
        """Return every process that inherited this demo's state directory, whoever its parent is."""
        return [pid for pid in processes.marked("GAIA_STATE", str(self.state)) if processes.is_running(pid)]

    def finish(self) -> str:
        """Read what is left of the output, and return all of it."""
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.told += output.readlines()
        self.process.wait(120)
        return "".join(self.told)

    def clean(self) -> None:
        processes.end_all(self.all_pids, 0.5)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.stdout.close()
        self.process.wait(120)


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[Demo]]:
    started: list[Demo] = []
    yield started
    for demo in started:
        demo.clean()


def start(demos: list[Demo], state: Path, *arguments: str, port: int | None = None) -> Demo:
    demos.append(Demo(state, *arguments, port=port))
    return demos[-1]


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda signum: signum.name
)
def test_a_demo_with_a_server_and_a_kernel_ends_without_a_trace(
    tmp_path: Path, demos: list[Demo], signum: signal.Signals
) -> None:
    demo = start(demos, tmp_path / "state", "--sim", "--cards", "1", "--card-memory", "8GiB")
    demo.wait_open()
    told = "".join(demo.told)
    for step in ("[1/4] Cards", "[2/4] Agent", "[3/4] JupyterHub", "[4/4] Open"):
        assert step in told
    assert f"Address   {demo.url}" in told
    assert f"Password  {PASSWORD}" in told
    assert "no security" in told
    ann = Person(demo.url, "ann")
    ann.submit(profile="small")
    ann.wait_ready()
    client = NodeClient(paths.operator_socket(demo.state / "sim"))
    assert [slot.owner for slot in client.slots()] == ["ann"]
    kernel = start_kernel(demo.state / "hub" / "homes", ann)
    assert kernel in demo.all_pids()
    assert len(demo.all_pids()) >= 5  # demo, hub, agent, server, kernel

    demo.process.send_signal(signum)
    said = demo.finish()
    assert demo.process.returncode == 0
    assert "Ended; nothing is left." in said
    assert demo.all_pids() == []
    assert not probe.state_file(demo.state / "sim-driver").exists()
    for path in (demo.state / "hub").iterdir():
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_killed_demo_takes_its_children_along(tmp_path: Path, demos: list[Demo]) -> None:
    demo = start(demos, tmp_path / "state", "--sim")
    demo.wait_open()
    ann = Person(demo.url, "ann")
    ann.submit(profile="small")
    ann.wait_ready()
    demo.process.kill()
    until(lambda: not demo.all_pids())
    # and the next one finds everything in order
    again = start(demos, tmp_path / "state", "--sim", port=demo.port)
    again.wait_open()
    client = NodeClient(paths.operator_socket(demo.state / "sim"))
    until(lambda: not client.slots())
    again.process.send_signal(signal.SIGTERM)
    assert "Ended; nothing is left." in again.finish()


def test_the_agent_comes_back_when_it_is_killed(tmp_path: Path, demos: list[Demo]) -> None:
    demo = start(demos, tmp_path / "state", "--sim")
    demo.wait_open()
    client = NodeClient(paths.operator_socket(demo.state / "sim"))
    first = client.health().pid
    os.kill(first, signal.SIGKILL)

    def other() -> bool:
        try:
            return client.health().pid != first
        except Exception:
            return False

    until(other)
    demo.process.send_signal(signal.SIGTERM)
    assert "Ended; nothing is left." in demo.finish()


def test_a_hub_that_ends_by_itself_ends_the_demo_and_leaves_nothing(
    tmp_path: Path, demos: list[Demo]
) -> None:
    demo = start(demos, tmp_path / "state", "--sim")
    demo.wait_open()
    ann = Person(demo.url, "ann")
    ann.submit(profile="small")
    ann.wait_ready()
    hub = int((demo.state / "hub" / "jupyterhub.pid").read_text())
    os.kill(hub, signal.SIGKILL)
    said = demo.finish()
    assert demo.process.returncode == 1
    assert "JupyterHub ended by itself" in said
    assert demo.all_pids() == []


def test_control_c_during_the_start_ends_at_once(tmp_path: Path, demos: list[Demo]) -> None:
    demo = start(demos, tmp_path / "state", "--sim")
    assert demo.process.stdout is not None
    demo.told.append(demo.process.stdout.readline())
    demo.process.send_signal(signal.SIGINT)
    assert "Ended; nothing is left." in demo.finish()
    assert demo.process.returncode == 0
    assert demo.all_pids() == []


def test_a_port_in_use_is_one_sentence_with_a_port_that_is_free(tmp_path: Path, demos: list[Demo]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        demo = start(demos, tmp_path / "state", "--sim", port=taken.getsockname()[1])
        said = demo.finish()
    assert demo.process.returncode == 1
    match = re.fullmatch(
        r"gaia: Port (\d+) on 127\.0\.0\.1 is in use by another program\. "
        r"Choose another: gaia demo --port (\d+)\n",
        said,
    )
    assert match, said
    assert match[1] != match[2]
    assert demo.all_pids() == []


def test_a_second_demo_on_the_same_state_names_the_first(tmp_path: Path, demos: list[Demo]) -> None:
    first = start(demos, tmp_path / "state", "--sim")
    first.wait_open()
    second = start(demos, tmp_path / "state", "--sim")
    said = second.finish()
    assert second.process.returncode == 1
    assert f"A demo is running already at {first.url} (process {first.process.pid})" in said
    first.process.send_signal(signal.SIGTERM)
    assert "Ended; nothing is left." in first.finish()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--password", "short"], 1, "8 characters or more"),
        (["--card-memory", "8"], 3, "a number and a unit"),
        (["--card-memory", "1MiB"], 1, "at least 1GiB"),
        (["--cards", "0"], 2, "--cards"),
        (["--port", "0"], 2, "--port"),
        (["--driver", "/nowhere"], 1, "/nowhere is no driver directory"),
        (["--driver", "/nowhere", "--sim"], 1, "not both"),
        (["--unknown"], 2, "--unknown"),
    ],
)
def test_a_mistake_in_the_command_line_is_said_and_nothing_starts(
    tmp_path: Path, demos: list[Demo], arguments: list[str], code: int, words: str
) -> None:
    demo = start(demos, tmp_path / "state", *arguments)
    said = demo.finish()
    assert (demo.process.returncode, words in said) == (code, True), said
    assert demo.all_pids() == []
