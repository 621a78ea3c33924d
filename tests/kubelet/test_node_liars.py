"""A tenant that says in its usage page that it gave memory back: what it has is given to nobody."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gaia_plugin.agent import loops
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.shares import Share
from gaia_plugin.sim import Simulation
from gaia_plugin.units import MIB, units_up
from tests.kubelet.node_world import CORES, MEMORY, uuid_of
from tests.kubelet.watch_world import Program, Watched, claim, watched_node
from tests.support.kubeapi import FakeKubeApi

CARD, UNITS, CONTEXT = uuid_of(0), 32, 300
TRIES = 1000
MOST = {"gaia.io/vgpu-max-memory": str(UNITS), "gaia.io/vgpu-max-cores": "50"}

Lie = Callable[[Path, int, random.Random], None]


def says_nothing_is_used(page: Path, pid: int, chance: random.Random) -> None:
    claim(page, pid, used=0)


def says_a_little_is_used(page: Path, pid: int, chance: random.Random) -> None:
    claim(page, pid, used=chance.randrange(64 * MIB))


def strikes_itself_out(page: Path, pid: int, chance: random.Random) -> None:
    page.write_bytes(page.read_bytes()[:4096].ljust(page.stat().st_size, b"\0"))


def names_another(page: Path, pid: int, chance: random.Random) -> None:
    claim(page, os.getpid(), used=0)


def cuts_the_page_short(page: Path, pid: int, chance: random.Random) -> None:
    os.truncate(page, chance.randrange(page.stat().st_size))


def fills_the_page_with_noise(page: Path, pid: int, chance: random.Random) -> None:
    with open(page, "r+b") as file:
        file.seek(chance.randrange(4096))
        file.write(chance.randbytes(4096))


LIES: tuple[Lie, ...] = (
    says_nothing_is_used, says_a_little_is_used, strikes_itself_out, names_another, cuts_the_page_short,
    fills_the_page_with_noise,
)  # fmt: skip


@pytest.fixture
async def watched(place: Path, kube: FakeKubeApi) -> AsyncIterator[Watched]:
    """A node with one simulated card of 8 GiB."""
    async with watched_node(place, kube, 1) as watched:
        yield watched


async def test_no_byte_of_a_liar_is_given_away_in_a_thousand_tries(watched: Watched) -> None:
    liar = await watched.run({MEMORY: 4, CORES: 10}, annotations=MOST)
    other = await watched.run({MEMORY: 1, CORES: 10}, annotations=MOST)
    program, truth = watched.start(liar), Simulation(watched.driver)
    slots, page = (watched.world.slot(liar), watched.world.slot(other)), watched.usage(liar)
    empty, chance = page.read_bytes(), random.Random(5)
    given_away = tries_that_held = 0
    for number in range(TRIES):
        page.write_bytes(empty)
        used = await take(watched, slots[0], program, chance.randrange(64, 7 * 1024))
        assert truth.used() == (used,)
        LIES[number % len(LIES)](page, program.pid, chance)
        if chance.random() < 0.2:
            await loops.observe(watched.world.agent.node)
        await shrink(watched, slots[0])
        taken = await take_all_that_is_offered(watched, slots[1])
        given_away += max(0, units_up(used) + taken - UNITS)
        tries_that_held += units_up(used) > 1
        await shrink(watched, slots[1])
    assert given_away == 0
    assert tries_that_held == TRIES
    assert watched.world.agent.core.ledger.overbooked() == {}


async def take(watched: Watched, slot: str, program: Program, mib: int) -> int:
    """Let a program honestly take what it is granted; return its bytes."""
    assert program.hold(0) == 0
    node, used = watched.world.agent.node, (mib + CONTEXT) * MIB
    while True:
        await node.drain(slot)
        if await node.do(_resize, watched.world.agent.core, slot, units_up(used)):
            break
    assert program.hold(mib) == 0
    return used


async def shrink(watched: Watched, slot: str) -> None:
    """Shrink a slot to the least, and let it give back what it does not use."""
    node = watched.world.agent.node
    assert await node.do(_resize, watched.world.agent.core, slot, 1)
    for _ in range(2):
        await node.drain(slot)


async def take_all_that_is_offered(watched: Watched, slot: str) -> int:
    """Grow a slot as far as it may; return its units."""
    core = watched.world.agent.core
    units = core.ledger.could_reach(slot).units
    assert await watched.world.agent.node.do(_resize, core, slot, units)
    return core.ledger.slot(slot).target.units


def _resize(core: PodCore, slot: str, units: int) -> bool:
    """Put a target in force, as far as there is room for it; a step of the core."""
    record = core.ledger.slot(slot)
    if core.ledger.could_reach(slot).units < units:
        return False
    after = core.ledger.resize(slot, {CARD: Share(units, record.target.cores)})
    assert core._store(after)
    return True
