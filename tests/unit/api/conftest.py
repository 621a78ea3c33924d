"""A node without ledger, cards or processes behind the real HTTP part, on a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from gaia_plugin.api import app as app_module
from gaia_plugin.api import models
from gaia_plugin.api import serve as serve_module
from gaia_plugin.api.app import make_app
from gaia_plugin.api.client import NodeClient, SlotClient
from gaia_plugin.api.serve import serve
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB, parse_cores, parse_memory

NOTHING = models.Amounts(memory=0, cores=0)


def a_slot(slot: str = "alice", memory: int = 4 * GIB, generation: int = 1) -> models.Slot:
    amounts = models.Amounts(memory=memory, cores=25)
    return models.Slot(
        slot=slot, owner="alice", name="", generation=generation, state="applied", compute="hard",
        requested=amounts, granted=amounts, held=amounts, used=0,
        maximum=models.Amounts(memory=16 * GIB, cores=100), could_reach=amounts,
        cards=(), processes=(), message="",
    )  # fmt: skip


@dataclass
class FakeNode:
    """Slots in a dict; whatever was asked is in `asked`."""

    known: dict[str, models.Slot] = field(default_factory=lambda: {"alice": a_slot()})
    asked: list[object] = field(default_factory=list)
    fault: Exception | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def health(self) -> models.Health:
        return models.Health(pid=1, version="0", driver="", state="", slots=len(self.known))

    async def cards(self) -> tuple[models.CardView, ...]:
        if self.fault is not None:
            raise self.fault
        return ()

    async def slots(self) -> tuple[models.Slot, ...]:
        return tuple(self.known.values())

    async def slot(self, slot: str) -> models.Slot:
        if slot not in self.known:
            raise Refusal(Code.NO_SUCH_SLOT, f"There is no slot {slot}.")
        return self.known[slot]

    async def make(self, wish: models.NewSlot) -> models.MadeSlot:
        self.asked.append(wish)
        made = a_slot(wish.owner, parse_memory(wish.memory))
        self.known[wish.owner] = made
        return models.MadeSlot(slot=made, directory="/d", environment={"A": "b"})

    async def resize(self, slot: str, wish: models.Resize, generation: int | None) -> models.Resized:
        current = await self.slot(slot)
        memory = parse_memory(wish.memory)
        if wish.cores is not None:
            parse_cores(wish.cores)
        self.asked.append(wish)
        if generation not in (None, current.generation):
            raise Refusal(Code.STALE, "The slot has changed since.")
        if memory > current.maximum.memory:
            raise Refusal(Code.OVER_MAXIMUM, "At most 16 GiB.", best_memory=16 * GIB, best_cores=100)
        changed = a_slot(slot, memory, current.generation + 1)
        self.known[slot] = changed
        self.changed.set()
        return models.Resized(state="applied", message="Done.", slot=changed)

    async def release(self, slot: str) -> models.Slot:
        gone = await self.slot(slot)
        del self.known[slot]
        self.changed.set()
        return msgspec.structs.replace(gone, state="releasing", granted=NOTHING)

    async def own(self, slot: str, owner: models.Owner) -> models.Slot:
        self.asked.append(owner)
        return await self.slot(slot)

    async def fit(self, wishes: Sequence[models.NewSlot]) -> tuple[models.Fit, ...]:
        return tuple(models.Fit(fits=True) for _ in wishes)

    async def explain(self, pod: str) -> models.Explained:
        self.asked.append(pod)
        return models.Explained(pod=pod, uid="u", node="n", phase="Running", sentence="", containers=())

    async def wait_for_change(self, slot: str, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.changed.wait()
            self.changed.clear()
        except TimeoutError:
            pass


@dataclass
class Served:
    node: FakeNode
    slot_socket: Path
    operator_socket: Path

    @property
    def slot(self) -> SlotClient:
        return SlotClient(self.slot_socket)

    @property
    def operator(self) -> NodeClient:
        return NodeClient(self.operator_socket)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests arrive as late as they like; what is said of late ones has tests of its own."""
    monkeypatch.setattr(serve_module, "HEADER_TIMEOUT", 600.0)
    monkeypatch.setattr(app_module, "BODY_TIMEOUT", 600.0)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    node = FakeNode()
    served = Served(node, tmp_path / "agent.sock", tmp_path / "operator.sock")
    yield from serve_in_thread(served)


def serve_in_thread(served: Served) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    ready, done = threading.Event(), asyncio.Event()

    async def run() -> None:
        one = await serve(make_app(served.node, "alice"), served.slot_socket, limited=True)
        two = await serve(make_app(served.node), served.operator_socket, limited=False)
        ready.set()
        await done.wait()
        await one.close()
        await two.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield served
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
        loop.close()


@pytest.fixture
def api_far_down(tmp_path: Path) -> Iterator[Served]:
    deep = tmp_path.joinpath(*["a-long-name-of-a-directory"] * 8)
    deep.mkdir(parents=True)
    yield from serve_in_thread(Served(FakeNode(), deep / "agent.sock", deep / "operator.sock"))
