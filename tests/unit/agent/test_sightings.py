"""What the driver shows above a slot's target is never given away by an older reading."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.agent import loops
from gaia_plugin.api.models import NewSlot, Resize
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB, MEMORY_UNIT


@pytest.fixture
async def card(machine: Any) -> str:
    made = await machine.node.make(NewSlot(owner="alice", memory="4GiB", cores=25))
    return str(made.slot.cards[0].uuid)


@pytest.fixture
def hidden(machine: Any) -> Iterator[int]:
    """The pid of a program of the slot that stays out of its usage page."""
    socket: Path = machine.node.core.directory("alice") / "agent.sock"
    environ = {**os.environ, "GAIA_SLOT_SOCKET": str(socket)}
    process = subprocess.Popen([sys.executable, "-c", "input()"], env=environ, stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.communicate()


async def shrunk(machine: Any) -> None:
    await machine.node.resize("alice", Resize(memory="1GiB"), None)


@pytest.mark.parametrize("units", [5, 16], ids=["what is still booked", "more than is booked"])
async def test_a_sighting_voids_readings_that_began_before_it(machine: Any, card: str, units: int) -> None:
    core = machine.node.core
    await machine.node.do(core.ledger.resize, "alice", {card: core.ledger.slot("alice").target})
    await machine.node.do(core.raise_held, "alice", card, 8)
    target = core.ledger.slot("alice").on(card).target
    await machine.node.do(core.ledger.resize, "alice", {card: type(target)(4, target.cores)})
    claim = await machine.node.do(core.claim, "alice")
    held = core.ledger.slot("alice").held.units
    await machine.node.do(core.found, core.ledger.slot("alice"), card, units)
    with pytest.raises(Refusal) as refused:
        await machine.node.do(core.settle, claim, {card: 0}, 0)
    assert refused.value.code is Code.STALE
    assert core.ledger.slot("alice").held.units == max(held, units)
    again = await machine.node.do(core.claim, "alice")
    await machine.node.do(core.settle, again, {card: 0}, 0)
    assert core.ledger.slot("alice").held.units == 4


async def test_a_process_that_keeps_out_of_its_page_is_booked(machine: Any, card: str, hidden: int) -> None:
    await shrunk(machine)
    machine.gpus.held[card][hidden] = 6 * GIB
    await loops.observe(machine.node)
    assert machine.node.core.ledger.slot("alice").held.units == 6 * GIB // MEMORY_UNIT


async def test_a_stranger_on_the_card_is_nobodys(machine: Any, card: str) -> None:
    machine.gpus.held[card][os.getpid()] = 6 * GIB
    await loops.observe(machine.node)
    assert machine.node.core.ledger.slot("alice").held.units == 4 * GIB // MEMORY_UNIT
