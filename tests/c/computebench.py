"""Tenants of a simulated card, and the shares that they got, read from the card's own timeline."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from gaia_plugin.sim import Simulation
from tests.c.slotbench import MIB, Bench

HARD, ELASTIC = 1, 2
FULL = 1_000_000
MEMORY = 1024 * MIB


@dataclass(frozen=True)
class Slot:
    """One of several slots on the bench's first card."""

    bench: Bench
    name: str = "alice"

    @property
    def path(self) -> Path:
        """The slot's directory."""
        return self.bench.root / "slots" / self.name

    def make(self, rate: int, mode: int = HARD, guarantee: int | None = None, *, card: int = 0) -> Slot:
        """Write the slot's pages; `rate` and `guarantee` in millionths of the card's time."""
        if not self.path.exists():
            self.path.mkdir()
            (self.path / "lib").symlink_to("../../lib")
            self.bench.page("make", self.path)
        self.bench.page("card", self.path, card, self.bench.uuids[card], MEMORY, MEMORY, 1, 0)
        self.beat()
        self.rate(rate, mode, guarantee, card=card)
        return self

    def rate(self, rate: int, mode: int = HARD, guarantee: int | None = None, *, card: int = 0) -> None:
        """Change the compute words, as the agent does, and wake who waits for them."""
        words = (mode, rate, rate if guarantee is None else guarantee)
        self.bench.page("compute", self.path, card, *words)

    def beat(self, age_seconds: float = -4) -> None:
        """Write when the agent was last here; by default so that it is fresh for nine seconds."""
        self.bench.page("heartbeat", self.path, int(age_seconds * 1e9) % 2**64)

    def meter(self) -> list[tuple[int, int, int, int]]:
        """What its processes say: pid, GPU time paid, time waited, launches."""
        rows = [
            tuple(map(int, line.split()[1:])) for line in self.bench.page("meter", self.path).splitlines()
        ]
        return [(row[0], row[1], row[2], row[3]) for row in rows if row[0]]

    def tenant(self, **options: object) -> Tenant:
        """Start a program that keeps the card busy; see benchmarks/interposer/duty.c."""
        return Tenant(self, options)


@dataclass(frozen=True)
class Result:
    """What a tenant says at its end."""

    launches: int
    longest_wait_ns: int
    cpu_ns: int


class Tenant:
    """A running duty program; closed by the end of its input."""

    def __init__(self, slot: Slot, options: dict[str, object], library: Path | None = None) -> None:
        arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.process = subprocess.Popen(
            [slot.bench.build / "tests/duty", *arguments],
            env=slot.bench.environment() | {"LD_LIBRARY_PATH": str(library or slot.path / "lib")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        word, *rest = self.process.stdout.readline().split()
        assert word == "ready", (word, rest)
        self.pid = int(rest[0])

    def __enter__(self) -> Tenant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None and kind is None:
            self.end()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()

    def end(self) -> Result:
        """Let it stop; what it says of itself."""
        out, _ = self.process.communicate(timeout=30)
        words = out.split()
        assert self.process.returncode == 0, out
        assert len(words) == 3, out
        return Result(*map(int, words))


def simulation(bench: Bench) -> Simulation:
    """The truth about the bench's cards."""
    return Simulation(bench.root / "driver")


def windows(
    sim: Simulation, seconds: float, window: float, *, between: Callable[[float], None] = lambda _: None
) -> list[dict[int, float]]:
    """Return the percentage of the card's time that each process got, window after window.

    The windows are as long as the card's own clock says; `between` is told the seconds gone by.
    """
    found: list[dict[int, float]] = []
    before = start = sim.time(0)
    while before.at_ns - start.at_ns < seconds * 1e9:
        between((before.at_ns - start.at_ns) / 1e9)
        time.sleep(max(0.0, window - (time.monotonic_ns() - before.at_ns) / 1e9))
        now = sim.time(0)
        length = now.at_ns - before.at_ns
        found.append(
            {pid: 100 * (ran - before.executed.get(pid, 0)) / length for pid, ran in now.executed.items()}
        )
        before = now
    return found


def starved(pids: Iterable[int]) -> dict[int, int]:
    """Return for how many nanoseconds each process has waited for a core of this machine until now.

    Of its threads that with the longest waits; 0 for a process that is gone.
    """
    waits = {}
    for pid in pids:
        texts = []
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                texts.append(path.read_text())
        waits[pid] = max((int(text.split()[1]) for text in texts if text), default=0)
    return waits


def misses(
    slot: Slot,
    percent: float,
    *pids: int,
    off: float = 5,
    each: float = 100,
    seconds: float = 1.5,
    window: float = 0.5,
    warm: float = 0.4,
) -> list[str]:
    """Return what is wrong with the share that these processes, or all, get together; nothing if nothing is.

    The mean is to be within `off` points of `percent`, every window within `each`. A program that waits
    for a core cannot keep the card busy, so that its share may be smaller in proportion to the time it
    waited; never larger. What misses is measured once more, for twice as long.
    """
    sim = simulation(slot.bench)
    wrong: list[str] = []
    for length in (seconds, 2 * seconds):
        windows(sim, warm, warm)
        rows: list[tuple[float, float]] = []
        while len(rows) * window < length:
            users = pids or tuple(sim.time(0).executed)
            before = starved(users)
            row = windows(sim, window, window)[0]
            waits = [after - before.get(pid, after) for pid, after in starved(users).items()]
            lost = sum(min(1, max(0, wait) / window / 1e9) for wait in waits) / max(1, len(waits))
            rows.append((total(row, *pids), percent * lost))
        shares, losses = ([row[of] for row in rows] for of in (0, 1))
        average, loss = sum(shares) / len(rows), sum(losses) / len(rows)
        wrong = [
            f"{share:.2f} of {percent} in one window, {lost:.2f} lost to others on this machine"
            for share, lost in rows
            if not percent - each - lost <= share <= percent + each
        ]
        if not percent - off - loss <= average <= percent + off:
            wrong.append(f"{average:.2f} of {percent} in the mean, {loss:.2f} lost to others: {shares}")
        if not wrong:
            break
    return wrong


def mean(found: Sequence[dict[int, float]], *pids: int) -> float:
    """Return the mean over the windows of what these processes, or all, got together."""
    return sum(total(row, *pids) for row in found) / len(found)


def total(row: dict[int, float], *pids: int) -> float:
    """Return what these processes, or all, got together in one window."""
    return sum(share for pid, share in row.items() if not pids or pid in pids)
