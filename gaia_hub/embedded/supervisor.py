"""The two children of `gaia demo`, agent and hub: started, watched and ended with all below them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from gaia_hub.embedded import processes
from gaia_hub.embedded.machine import Machine
from gaia_hub.embedded.settings import ENVIRONMENT, HubSettings
from gaia_plugin.errors import Unusable

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGENT_SECONDS: Final = 30.0
_PAGE_SECONDS: Final = 60.0
_HUB_GRACE: Final = 25.0
_AGENT_CHECK: Final = 5.0
_AGENT_STARTS: Final = 5
_TAKEN: Final = 17
"""Exit code of an agent whose state directory another one has."""


class Asked(Exception):
    """Somebody asked for the end, by Control-C or a signal."""


class Supervisor:
    """Use in the main thread: it handles SIGINT, SIGTERM and SIGHUP from its making to `end`."""

    def __init__(self, machine: Machine, settings: HubSettings) -> None:
        self._machine = machine
        self._settings = settings
        self._agent: subprocess.Popen[bytes] | None = None
        self._hub: subprocess.Popen[bytes] | None = None
        self._agent_starts = 0
        self.failure = ""
        self._asked = False
        self._wake_out, self._wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        processes.become_subreaper()
        self._earlier = {signum: signal.signal(signum, self._on_signal) for signum in _SIGNALS}

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        self._asked = True
        with suppress(BlockingIOError):
            os.write(self._wake_in, b"!")

    def _wait(self, seconds: float, *children: subprocess.Popen[bytes] | None) -> None:
        """Sleep until a child ends, a signal comes or the time is over.

        Raises:
            Asked: a signal has come.
        """
        descriptors = [self._wake_out]
        for child in children:
            if child is not None and child.poll() is None:
                with suppress(OSError):
                    descriptors.append(os.pidfd_open(child.pid))
        try:
            if not self._asked:
                select.select(descriptors, [], [], max(0.0, seconds))
        finally:
            for descriptor in descriptors[1:]:
                os.close(descriptor)
        if self._asked:
            raise Asked

    # starting

    def start_hub(self) -> None:
        """Start JupyterHub as a child; its output goes to hub.log."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("JUPYTERHUB_")},
            ENVIRONMENT: str(self._settings.write()),
        }
        log = Path(self._settings.directory, "hub.log")
        with log.open("wb") as output:
            self._hub = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(config_file())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self._settings.directory,
                start_new_session=True,  # Ctrl-C in the terminal is for this process alone
                preexec_fn=processes.die_with_parent(),
            )

    def start_agent(self) -> None:
        """Start the agent, unless one answers already."""
        if self._machine.running():
            return
        self._agent_starts += 1
        with Path(self._settings.directory, "agent.log").open("ab") as output:
            self._agent = self._machine.start_agent(output)

    def wait_for_agent(self) -> None:
        """Wait until the agent answers.

        Raises:
            Unusable: it ended or does not answer in time; with its last words.
            Asked: a signal has come.
        """
        deadline = time.monotonic() + _AGENT_SECONDS
        while not self._machine.running():
            ended = None if self._agent is None else self._agent.poll()
            if ended not in (None, _TAKEN):
                raise Unusable(f"The agent did not start. {self._last_words('agent.log')}")
            if time.monotonic() > deadline:
                raise Unusable(f"The agent does not answer. {self._last_words('agent.log')}")
            self._wait(0.05, self._agent)

    def wait_for_page(self, address: str) -> None:
        """Wait until the hub's page is there.

        Raises:
            Unusable: the hub ended or does not answer in time; with its last words.
            Asked: a signal has come.
        """
        deadline = time.monotonic() + _PAGE_SECONDS
        while not _answers(address):
            if self._hub is None or self._hub.poll() is not None:
                raise Unusable(f"JupyterHub did not start. {self._last_words('hub.log')}")
            if time.monotonic() > deadline:
                raise Unusable(f"JupyterHub does not answer. {self._last_words('hub.log')}")
            self._wait(0.05, self._hub)

    def _last_words(self, name: str) -> str:
        path = Path(self._settings.directory, name)
        lines: list[str] = []
        with suppress(OSError):
            lines = path.read_text(errors="replace").strip().splitlines()
        last = lines[-1].strip() if lines else "It said nothing."
        return f"Its last words: {last}\nAll of them are in {path}."

    # running

    def watch(self) -> None:
        """Wait until a signal comes or the hub ends; start the agent again if it ends before that.

        Running servers go on under their last limits while the agent is away.
        """
        with suppress(Asked):
            while self._hub is not None and self._hub.poll() is None:
                if (
                    self._agent is None or self._agent.poll() is not None
                ) and self._agent_starts < _AGENT_STARTS:
                    self.start_agent()
                # the kernels of a killed server come to this process, and stay zombies until it looks
                processes.reap_adopted({child.pid for child in (self._hub, self._agent) if child})
                self._wait(_AGENT_CHECK, self._hub, self._agent)
            self.failure = f"JupyterHub ended by itself. {self._last_words('hub.log')}"

    # ending

    def end(self) -> list[int]:
        """End the hub with its servers, then what they left, then the agent; return pids that stay."""
        self._asked = False  # a second signal from here on cuts the waiting short
        try:
            self._end_child(self._hub, _HUB_GRACE)
            processes.end_all(self._below_but_agent, 2.0, also_reap=True)
            self._end_child(self._agent, 10.0)
            return processes.end_all(partial(processes.descendants, os.getpid()), 1.0, also_reap=True)
        finally:
            for signum, handler in self._earlier.items():
                signal.signal(signum, handler)
            os.close(self._wake_in)
            os.close(self._wake_out)

    def _below_but_agent(self) -> list[int]:
        agent = self._agent.pid if self._agent is not None and self._agent.returncode is None else -1
        spared = {agent, *processes.descendants(agent)} if agent > 0 else set()
        return [pid for pid in processes.descendants(os.getpid()) if pid not in spared]

    def _end_child(self, child: subprocess.Popen[bytes] | None, grace: float) -> None:
        if child is None or child.poll() is not None:
            return
        child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while child.poll() is None and time.monotonic() < deadline:
            with suppress(BlockingIOError):
                os.read(self._wake_out, 100)
            try:
                self._wait(0.5, child)
            except Asked:
                break
        if child.poll() is None:
            child.kill()
            child.wait()


def config_file() -> Path:
    """Return the path of the hub's configuration file, without running it."""
    return Path(__file__).with_name("config.py")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310  our own address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
