"""What metrics tell of one node: its slots as they stand, and what it did."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.agent import loops
from gaia_plugin.agent.figures import Figures
from gaia_plugin.agent.meter import Meter
from gaia_plugin.api import pace
from gaia_plugin.api.client import SlotClient
from gaia_plugin.api.models import NewSlot, Resize
from gaia_plugin.errors import Refusal
from gaia_plugin.metrics.collector import render
from gaia_plugin.metrics.snapshot import Snapshot
from gaia_plugin.slots.counters import Counters
from gaia_plugin.units import GIB, MIB
from tests.unit.agent.conftest import CARDS, Machine
from tests.unit.metrics.conftest import Told


async def snapshot(machine: Machine) -> Snapshot:
    return await Figures(machine.node, machine.node.meter).snapshot()  # type: ignore[arg-type]


async def told(machine: Machine) -> Told:
    return Told.read(render(await snapshot(machine)))


async def test_an_idle_slot_and_an_unlimited_one_are_told(machine: Machine) -> None:
    await machine.node.make(NewSlot(owner="alice", memory="4GiB", cores=25))
    await machine.node.make(NewSlot(owner="bob", cores=100))
    page = await told(machine)
    for owner, memory, cores in (("alice", 4 * GIB, 0.25), ("bob", 23 * GIB + 512 * MIB, 1.0)):
        for amount in ("requested", "granted", "held"):
            assert page.value(f"gaia_slot_memory_{amount}_bytes", owner=owner) == memory
            assert page.value(f"gaia_slot_compute_{amount}_ratio", owner=owner) == cores
        assert page.value("gaia_slot_memory_used_bytes", owner=owner) == 0
        assert page.value("gaia_slot_compute_guarantee_ratio", owner=owner) == cores
        assert page.value("gaia_slot_compute_limit_ratio", owner=owner) == cores
        assert page.value("gaia_slot_compute_used_ratio", owner=owner) == 0
        assert page.value("gaia_slot_throttled_seconds_total", owner=owner) == 0
        assert page.value("gaia_slot_state", owner=owner, state="applied") == 1


async def test_a_slot_that_is_gone_is_not_told(machine: Machine) -> None:
    await machine.node.make(NewSlot(owner="alice", memory="4GiB"))
    await machine.node.make(NewSlot(owner="bob", memory="4GiB"))
    await machine.node.release("alice")
    page = await told(machine)
    assert {labels["owner"] for labels in page.labels("gaia_slot_state")} == {"bob"}
    assert {labels["owner"] for labels in page.labels("gaia_slot_memory_held_bytes")} == {"bob"}


async def test_a_slot_that_goes_while_it_is_read_is_left_out(machine: Machine) -> None:
    for owner in ("alice", "bob"):
        await machine.node.make(NewSlot(owner=owner, memory="1GiB"))
    listed = machine.node.core.ledger.slots

    class Late:
        """A ledger whose list is older than what else it says."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ledger, name)

        def slots(self) -> Any:
            return before

    before, ledger = listed(), machine.node.core.ledger
    await machine.node.release("alice")
    machine.node.core.ledger = Late()  # type: ignore[assignment]
    try:
        found = await snapshot(machine)
    finally:
        machine.node.core.ledger = ledger
    assert [slot.slot for slot in found.slots] == ["bob"]


async def test_draining_and_use_are_told(machine: Machine, program: subprocess.Popen[bytes]) -> None:
    made = await machine.node.make(NewSlot(owner="alice", memory="4GiB", process=program.pid))
    card = made.slot.cards[0].uuid
    machine.usage("alice").claim(0, program.pid, used=3 * GIB, context=1)
    machine.gpus.held[card][program.pid] = 3 * GIB + 300 * MIB
    await machine.node.resize("alice", Resize(memory="2GiB"), None)
    page = await told(machine)
    assert page.value("gaia_slot_state", state="draining") == 1
    assert page.value("gaia_slot_memory_granted_bytes", card=card) == 2 * GIB
    assert page.value("gaia_slot_memory_held_bytes", card=card) == 3 * GIB + 512 * MIB
    assert page.value("gaia_slot_memory_used_bytes", card=card) == 3 * GIB + 300 * MIB
    assert page.value("gaia_card_memory_used_bytes", card=card) == 3 * GIB + 300 * MIB
    assert page.value("gaia_card_memory_free_bytes", card=card) == 20 * GIB
    assert page.value("gaia_resizes_total", outcome="ok") == 1


async def test_an_overbooked_card_is_told(machine: Machine, program: subprocess.Popen[bytes]) -> None:
    made = await machine.node.make(NewSlot(owner="alice", memory="1GiB", process=program.pid))
    card = made.slot.cards[0].uuid
    machine.usage("alice").claim(0, program.pid, context=1)
    machine.gpus.held[card][program.pid] = 30 * GIB
    await loops.observe(machine.node)
    page = await told(machine)
    assert page.value("gaia_card_memory_overbooked_bytes", card=card) == 6 * GIB + 512 * MIB
    assert page.value("gaia_card_memory_free_bytes", card=card) == 0


async def test_resizes_and_refusals_are_counted_as_they_end(machine: Machine) -> None:
    made = await machine.node.make(NewSlot(owner="alice", memory="4GiB", max_memory="8GiB"))
    client = SlotClient(Path(made.directory) / "agent.sock")
    await asyncio.to_thread(client.resize, "5GiB")
    for wrong in ("9GiB", "x"):
        with pytest.raises(Refusal):
            await asyncio.to_thread(client.resize, wrong)
    with pytest.raises(Refusal):
        await machine.node.resize("nobody", Resize(memory="1GiB"), None)
    page = await told(machine)
    assert page.value("gaia_resizes_total", outcome="ok") == 1
    assert page.value("gaia_resizes_total", outcome="refused") == 3
    assert page.value("gaia_resize_duration_seconds_count") == 1
    assert page.value("gaia_refusals_total", code="over_maximum") == 1
    assert page.value("gaia_refusals_total", code="invalid_amount") == 1
    assert page.value("gaia_refusals_total", code="no_such_slot") == 0, "nobody was told by a socket"


@pytest.mark.parametrize("limit", ["RESIZES_PER_SECOND", "REQUESTS_PER_SECOND"])
async def test_who_asks_too_often_is_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(pace, limit, 0)
    made = await machine.node.make(NewSlot(owner="alice", memory="4GiB"))
    with pytest.raises(Refusal):
        await asyncio.to_thread(SlotClient(Path(made.directory) / "agent.sock").resize, "5GiB")
    page = await told(machine)
    assert page.value("gaia_refusals_total", code="too_many_requests") == 1
    assert sum(page.all("gaia_resizes_total")) == 0


async def test_a_page_that_cannot_be_written_is_no_refusal_by_a_rule(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.node.make(NewSlot(owner="alice", memory="4GiB"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(machine.node.core.directories, "store", full)
    with pytest.raises(Refusal):
        await machine.node.resize("alice", Resize(memory="5GiB"), None)
    assert (await told(machine)).value("gaia_resizes_total", outcome="unavailable") == 1


async def test_a_card_without_an_answer_has_no_use(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(uuid: str) -> int:
        raise Refusal("unavailable", "The driver gives no figure.")  # type: ignore[arg-type]

    monkeypatch.setattr(machine.gpus, "memory_used", silent)
    page = await told(machine)
    assert page.all("gaia_card_memory_used_bytes") == []
    assert len(page.all("gaia_card_memory_capacity_bytes")) == len(CARDS)


async def test_many_slots_are_read_in_steps(machine: Machine) -> None:
    for index in range(20):
        await machine.node.make(NewSlot(owner=f"user{index:02}", memory="1GiB", cores=1))
    steps: list[str] = []
    do = machine.node.do

    async def counted(step: Any, *args: Any, **more: Any) -> Any:
        steps.append(getattr(step, "__name__", ""))
        return await do(step, *args, **more)

    machine.node.do = counted  # type: ignore[method-assign]
    assert len((await snapshot(machine)).slots) == 20
    assert steps.count("_slots") == 3


@pytest.mark.parametrize(
    ("claimed", "seconds"),
    [(0, 0.0), (40_000_000, 0.04), (100_000_000, 0.1), (1 << 63, 1.6)],
)
def test_waiting_adds_up_and_no_claim_is_without_bounds(claimed: int, seconds: float) -> None:
    meter, waited = Meter(), 0
    for step in range(11):
        meter.step(step * 0.1, {1: Counters(throttled_ns=waited)}, 1_000_000, None)
        waited += claimed
    assert meter.waited == pytest.approx(10 * seconds, abs=1e-6)
    meter.step(1.1, {}, 1_000_000, None)
    meter.rest(1.2, {})
    assert meter.waited == pytest.approx(10 * seconds, abs=1e-6), "it never falls"
