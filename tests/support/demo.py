"""`gaia demo` in a process of its own, as a person at a terminal starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gaia_plugin.api.client import NodeClient
from gaia_plugin.api.models import Slot

GAIA = Path(sys.executable).with_name("gaia")
_T = TypeVar("_T")


def until(what: Callable[[], _T], seconds: float = 120.0) -> _T:
    """Return the first true answer of `what`; fail when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} s"
        time.sleep(0.05)


class Demo:
    """A running demo with two simulated cards.

    `url`, `password` are what it printed; `output` is all that it printed so far.
    """

    def __init__(self, state: Path, port: int) -> None:
        self.state = state
        self._log = state / "demo.log"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [GAIA, "demo", "--sim", "--port", str(port), "--no-open"],
                env={**os.environ, "GAIA_STATE": str(state), "GAIA_TEST": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            until(lambda: self._said("Password"))
        except BaseException:
            self.end()
            raise
        self.url = str(self._said("Address"))
        self.password = str(self._said("Password"))
        self.node = NodeClient(state / "sim" / "operator.sock")

    @property
    def output(self) -> str:
        """Return what was printed so far."""
        return self._log.read_text()

    def _said(self, word: str) -> str | None:
        assert self.process.poll() is None, self.output
        found = re.search(rf"^ *{word} +(\S+)$", self.output, re.M)
        return found.group(1) if found else None

    def slot(self, name: str) -> Slot | None:
        """Return the slot of that name, if there is one."""
        return next((slot for slot in self.node.slots() if slot.slot == name), None)

    def end(self) -> int:
        """Press Control-C and wait; return the exit code."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            return self.process.wait(120)
        finally:
            self.process.kill()
