"""A program that runs inside a machine, held from outside."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.polling import until


def child_of(pid: int) -> int:
    """Return the host pid of a process's only child, or 0."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return 0
    return int(children[0]) if children else 0


class Program:
    """The process itself is a child of the `nsenter` that we started: signals must go to the child."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path):
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._begin = output.tell()  # an earlier program of that name may have written before
            self.process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return the program's pid as this process sees it; 0 if it has ended."""
        ended = -1
        found = until(
            f"{self.name} has started",
            lambda: child_of(self.process.pid) or (self.process.poll() is not None and ended),
            10,
            every=0.01,
        )
        return 0 if found == ended else found

    @property
    def pid_inside(self) -> int:
        """Return its pid as the machine sees it."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
        return int(line.split()[-1])

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal; none if the program has ended."""
        pid = self.pid
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout: float = 20) -> int:
        """Signal it and wait for its end; kill it when it takes longer. Return the exit status."""
        self.send(how)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            return self.process.wait(timeout)

    def tail(self, lines: int = 30) -> str:
        """Return the last lines that it has written."""
        written = self.log.read_bytes()[self._begin :].decode(errors="replace")
        return "\n".join(written.splitlines()[-lines:])

    def alive(self) -> bool:
        """Return True while it runs; raise RuntimeError with its last lines if it has ended."""
        if self.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self.poll()}; see {self.log}:\n{self.tail()}")
        return True
