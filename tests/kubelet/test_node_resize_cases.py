"""Cases that other systems got wrong: a grow against a bind, IDs that outlive their reason."""

from __future__ import annotations

import asyncio
import random
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.agent.pods import gpunode as writing
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube import gpunode, nodes
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.gpunode import Amounts, Reservation, Spec
from gaia_plugin.slots.pages import layout, owner_word
from gaia_plugin.slots.processes import start_time
from tests.kubelet.node_world import CORES, MEMORY, World, uuid_of
from tests.kubelet.resizing import agreed, booked, growing, resize, seen, told
from tests.support.kubelet import Pod, until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def claim(page: Path, owner: int, *, used: int, pending: int) -> None:
    """Write into the first place of a usage page, as its process would."""
    numbers = layout()
    base = numbers["usage.process"]
    with page.open("r+b") as file:
        for offset, words in (
            (numbers["usage.high_water"], (1,)),
            (base, (owner,)),
            (base + numbers["usage.process.card"], (used, pending, 0)),
        ):
            file.seek(offset)
            file.write(struct.pack(f"={len(words)}Q", *words))


async def bind(world: World, uid: str, units: int) -> bool:
    """Reserve as the extender does: free by the object, PUT over the version it read; again at a conflict."""
    while True:
        node = await nodes.read(world.agent.api, "node1")
        assert node is not None
        if gpunode.free(node)[uuid_of(0)].units < units:
            return False
        mine = Reservation(uid, "main", uuid_of(0), Amounts(units, 1))
        try:
            await nodes.put_spec(world.agent.api, node, Spec((*node.spec.reservations, mine)))
        except ApiError as error:
            if not error.conflict:
                raise
        else:
            return True


async def grown(world: World, pod: Pod, units: int) -> Refusal | None:
    """Grow; return the refusal, if there is one."""
    try:
        await resize(world, pod, units)
    except Refusal as refusal:
        return refusal
    return None


async def c07(world: World, pod: Pod, dice: random.Random) -> bool:
    """One repetition; return whether the grow has won."""

    async def late(seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return await bind(world, "other", 16)

    refusal, bound = await asyncio.gather(grown(world, pod, 56), late(dice.random() * 0.02))
    assert (refusal is None) != bound, "exactly one wins"
    node = seen(world)
    reserved = sum(each.amounts.memory for each in node.spec.reservations)
    has = booked(world, pod)
    assert has is not None
    assert has[0] + reserved <= 64
    if refusal is not None:
        assert (refusal.code, refusal.best_memory) == (Code.CARD_FULL, 48 << 28)
        assert has[0] == 32
        world.kube.reserve()
    else:
        assert has == (56, 56)
        await resize(world, pod, 32)
    await until(lambda: booked(world, pod) == (32, 32) and told(world, pod) == (32, 32, "Applied"))
    return refusal is None


@pytest.mark.parametrize("seed", range(5))
async def test_c07_grow_against_a_concurrent_bind(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(writing, "SYNC_PAUSE", 0.0)
    pod = await world.run(growing(32, 25))
    await agreed(world, pod)
    dice = random.Random(seed)
    won = [await c07(world, pod, dice) for _ in range(100)]
    assert 0 < sum(won) < len(won), "both happened"


async def test_c08_shrink_below_what_is_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = await world.run(growing(16, 25))
    monkeypatch.setattr(world.agent.core.directories.members, "contains", lambda _, pid: pid == 4711)

    def uses(units: int) -> None:
        world.cards.held[uuid_of(0)] = {4711: units << 28}

    uses(12)
    answer = await resize(world, pod, 8)
    assert (answer.state, answer.slot.granted.memory, answer.slot.held.memory) == (
        "draining",
        8 << 28,
        12 << 28,
    )
    await until(lambda: told(world, pod) == (8, 12, "Draining"))
    assert seen(world).status.cards[0].free.memory == 64 - 12
    assert world.given(pod).cards[uuid_of(0)][0] == 8
    uses(10)
    await until(lambda: told(world, pod) == (8, 10, "Draining"))
    uses(8)
    await until(lambda: told(world, pod) == (8, 8, "Applied"))
    assert (await world.agent.node.slot(world.slot(pod))).state == "applied"
    assert seen(world).status.cards[0].free.memory == 64 - 8


async def test_c23_shrink_against_an_announced_allocation(
    world: World, monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    """A process has announced ten units, has read the old limit, and is stopped before the driver's call."""
    pod, other = await world.run(growing(16, 10)), await world.run(growing(16, 10))
    members = world.agent.core.directories.members
    monkeypatch.setattr(members, "host_pid", lambda _slot, pid, _start: pid)
    edits = pod.container("main").edits
    assert edits is not None
    page = Path(edits.mounts["/run/gaia/usage"].source)
    start = start_time(sleeper.pid)
    assert start is not None
    owner = owner_word(sleeper.pid, start)
    claim(page, owner, used=0, pending=10 << 28)
    sleeper.send_signal(signal.SIGSTOP)

    assert (await resize(world, pod, 4)).state == "draining"
    await until(lambda: booked(world, pod) == (4, 10))
    for _ in range(5):
        await world.agent.node.drain(world.slot(pod))
    refusal = await grown(world, other, 60)
    assert refusal is not None
    assert (refusal.code, refusal.best_memory) == (Code.CARD_FULL, 54 << 28)

    world.cards.held[uuid_of(0)] = {sleeper.pid: 10 << 28}  # the driver's call came through
    claim(page, owner, used=10 << 28, pending=0)
    sleeper.send_signal(signal.SIGCONT)
    for _ in range(5):
        await world.agent.node.drain(world.slot(pod))
    assert booked(world, pod) == (4, 10)

    world.cards.held[uuid_of(0)] = {}
    claim(page, owner, used=0, pending=0)
    await until(lambda: booked(world, pod) == (4, 4))
    assert await grown(world, other, 60) is None
    await agreed(world, pod, other)


async def test_c21_extra_ids_outlive_their_reason(world: World) -> None:
    first = await world.run(growing(64, 50))
    await resize(world, first, 16)
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64 + 48)
    second = await world.run(Pod.of({MEMORY: 48, CORES: 50}))  # on extra IDs
    ids = world.kubelet.ids(second)
    await agreed(world, first, second)
    await world.delete(first)
    await until(lambda: len(world.records()) == 1)
    await world.restart()
    await world.kubelet.restart()
    await world.registered()
    await world.agent.node.admission.reconciled.wait()
    before = world.given(second)
    assert await world.kubelet.restart_container(second)
    assert (world.given(second), world.kubelet.ids(second)) == (before, ids)
    await agreed(world, second)
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64)
    await world.delete(second)
    await until(lambda: not world.records())
    await until(lambda: world.kubelet.allocatable(MEMORY) == 64)
