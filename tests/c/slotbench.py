"""A slot on the simulated GPU, for tests of the interception library: real loader, real driver, no agent."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

MIB = 1024 * 1024
OOM = 2


@dataclass(frozen=True)
class Place:
    """What one process of the slot says of itself in `usage`; per card (used, pending, contexts)."""

    index: int
    pid: int
    cards: tuple[tuple[int, int, int], ...]


@dataclass
class Bench:
    """A directory with a simulated driver, the shadow in front of it, and one slot.

    Cards are UUIDs in CUDA order. Sizes are bytes.
    """

    build: Path
    root: Path
    cards: int = 1
    memory: int = 16 * 1024 * MIB
    context: int = 0
    extra: str = ""
    uuids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        driver, lib = self.root / "driver", self.root / "lib"
        for folder in (driver, lib, self.slot):
            folder.mkdir(parents=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(self.build / "lib/sim" / name, driver / name)
            shutil.copy(self.build / "lib/local" / name, lib / name)
        (lib / "driver").symlink_to(driver)
        (self.slot / "lib").symlink_to("../../lib")
        self.uuids = [f"GPU-{i + 1:02x}adbeef-0000-4000-8000-0123456789{i:02x}" for i in range(self.cards)]
        ids = "\n".join(f"card.{i}.uuid = {uuid}" for i, uuid in enumerate(self.uuids))
        (driver / "sim.conf").write_text(
            f"cards = {self.cards}\nmemory = {self.memory}\nreserved = 0\ncontext = {self.context}\n"
            f"state = {self.state}\n{ids}\n{self.extra}\n"
        )
        self.page("make", self.slot)

    @property
    def slot(self) -> Path:
        """The slot's directory."""
        return self.root / "slots/alice"

    @property
    def state(self) -> Path:
        """The simulator's shared file."""
        return self.root / "state"

    def page(self, verb: str, *arguments: object) -> str:
        """Run the test's page tool; its output."""
        done = subprocess.run(
            [self.build / "tests/page", verb, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"page {verb}: {done.stderr}"
        return done.stdout

    def card(
        self, index: int, limit: int, *, card: int | None = None, ceiling: int = 0, report: int = 1
    ) -> None:
        """Give the slot a slice: entry `index` of `limits` is the card of that number, or another one."""
        uuid = self.uuids[index if card is None else card]
        self.page("card", self.slot, index, uuid, limit, ceiling or limit, report, self.context)

    def limit(self, limit: int, index: int = 0) -> None:
        """Change a limit, as the agent does, under the running processes."""
        self.page("limit", self.slot, index, limit)

    def places(self) -> list[Place]:
        """All process places that are not free."""
        places = []
        for line in self.page("usage", self.slot).splitlines()[1:]:
            index, pid, _start, *words = map(int, line.split())
            cards = tuple((words[i], words[i + 1], words[i + 2]) for i in range(0, len(words), 3))
            places.append(Place(index, pid, cards))
        return [place for place in places if place.pid]

    def used(self, card: int = 0) -> int:
        """Sum of what the slot's processes say they use of a card."""
        return sum(place.cards[card][0] for place in self.places())

    def truth(self, card: int = 0) -> tuple[int, int]:
        """The simulator's own figures of a card: used now, and the most there ever was."""
        row = self.page("truth", self.state).splitlines()[card].split()
        return int(row[1]), int(row[2])

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a process in the slot."""
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return keep | {"LD_LIBRARY_PATH": str(self.slot / "lib"), **more}

    def run(self, program: str, *arguments: object, timeout: float = 200) -> str:
        """Run one of the C programs in the slot to its end; its output."""
        done = subprocess.run(
            [self.build / "tests" / program, *map(str, arguments)],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{program}: {done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}"
        return done.stdout

    def client(self, **environment: str) -> Client:
        """A process in the slot that makes the calls it is told."""
        return Client(self.build / "tests/client", self.environment(**environment))


class Client:
    """A CUDA program that does as it is told, one call at a time."""

    def __init__(self, program: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [program],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def say(self, line: str) -> None:
        """Send a line without waiting for an answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> list[str]:
        """Send a line; the words of the answer, the result first."""
        self.say(line)
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().split()
        assert answer, f"{line}: the program died with {self.process.wait(10)}"
        return answer

    def read(self) -> int:
        """One more answer to the last line (a forked child gives several); its result."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline().split()[0])

    def numbers(self, line: str) -> list[int]:
        """Send a line; the numbers of the answer, the result first."""
        return [int(word) for word in self.ask(line)]

    def call(self, line: str) -> int:
        """Send a line; the call's result."""
        return int(self.ask(line)[0])

    def calls(self, *lines: str) -> list[int]:
        """Send several lines; their results."""
        return [self.call(line) for line in lines]

    def start(self, device: int = 0) -> None:
        """Initialise the driver and make the device's primary context current, under number 0."""
        assert self.calls("init", f"retain {device} 0", "set 0") == [0, 0, 0]

    def output(self) -> str:
        """Everything the program still says on either stream, after its end."""
        rest, errors = self.process.communicate(timeout=120)
        return rest + errors

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(120)

    def close(self) -> None:
        """Close its input and wait for its end."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(120)
        finally:
            self.process.kill()
            for stream in (self.process.stdout, self.process.stderr):
                if stream:
                    stream.close()
