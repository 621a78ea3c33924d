"""Agents on simulated cards, started as users start them, and a program to drive in a slot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin import paths
from gaia_plugin.api.client import NodeClient
from gaia_plugin.api.start import agent_environment, answers
from gaia_plugin.sim import SimConfig, make_sim

DEADLINE = 120.0

PROGRAM = Path(__file__).with_name("allocate.py")


def poll(holds: Callable[[], Any], what: str = "") -> Any:
    """Return what `holds` returns as soon as it is true; fail after a deadline."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.02)
    pytest.fail(f"did not happen in time: {what or holds}")


@dataclass
class Allocator:
    """A program that allocates device memory when it is told to; see allocate.py."""

    process: subprocess.Popen[str]

    def ask(self, *words: object) -> list[int]:
        """Send one command; return the numbers of its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the program ended with {self.process.wait(10)}"
        return [int(word) for word in answer.split()]

    def end(self) -> int:
        """Let it end by itself; return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE)


@dataclass
class Place:
    """A state root of its own with a simulated driver of two 24 GiB cards."""

    root: Path
    driver: Path
    environ: dict[str, str]
    started: list[subprocess.Popen[Any]]

    @property
    def state(self) -> Path:
        return paths.state_directory(self.driver, self.root)

    @property
    def client(self) -> NodeClient:
        return NodeClient(paths.operator_socket(self.state))

    poll = staticmethod(poll)

    def gaia(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run `gaia` to its end."""
        command = [sys.executable, "-m", "gaia_plugin.cli", *words]
        environ = {**self.environ, **more.pop("environ", {})}
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False, **more
        )

    def agent(self) -> subprocess.Popen[str]:
        """Start an agent and wait until it answers."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gaia_plugin.cli", "agent", "--driver", str(self.driver)],
            env=self.environ,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.started.append(process)
        poll(lambda: answers(self.state) or process.poll() is not None, "an agent that answers")
        assert process.poll() is None
        return process

    def run(self, *words: str, program: tuple[str, ...] | None = None) -> subprocess.Popen[str]:
        """Start `gaia run`; by default the allocator."""
        program = program or (sys.executable, "-S", str(PROGRAM))
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gaia_plugin.cli",
                "run",
                "--driver",
                str(self.driver),
                *words,
                "--",
                *program,
            ],
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def allocator(self, *words: str) -> Allocator:
        return Allocator(self.run(*words))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "root"
    # its state lies beside it, so that nothing stays in /dev/shm
    driver = make_sim(tmp_path / "driver", SimConfig(state=tmp_path / "sim-state"))
    environ = {**agent_environment(os.environ), "GAIA_STATE": str(root)}
    here = Place(root, driver, environ, [])
    yield here
    for process in here.started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    holder = here.state / "agent.json"
    if holder.exists() and answers(here.state):
        os.kill(json.loads(holder.read_text())["pid"], signal.SIGTERM)
        poll(lambda: not answers(here.state), "the end of the agent")
