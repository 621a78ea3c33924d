"""What the search of the protocol found, tried on the agent: writes without news, grows that overtake."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube import times
from gaia_plugin.shares import Share
from tests.kubelet.node_world import World, uuid_of
from tests.kubelet.resizing import (
    agreed,
    booked,
    growing,
    is_pods,
    is_status,
    promised,
    resize,
    seen,
    told,
)
from tests.support.kubelet import until


class SlowClock(datetime):
    """A wall clock that shows one second for the whole of a test."""

    ticks = 0

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        cls.ticks += 1
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=cls.ticks)


async def test_a_status_that_says_nothing_else_voids_what_was_given_up_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "datetime", SlowClock)
    pod = await world.run(growing(32))
    monkeypatch.setattr(world.agent.node.core.directories.members, "contains", lambda _, pid: pid == 4711)
    world.cards.held[uuid_of(0)] = {4711: 24 << 28}
    await resize(world, pod, 8)
    await until(lambda: told(world, pod) == (8, 24, "Draining"))
    late = world.kube.hold_back(match=is_status)
    world.cards.held[uuid_of(0)] = {4711: 2 << 28}
    await until(lambda: late.waiting)  # it says that the slot holds 8
    world.kube.heal()
    after = world.kube.hold_back(match=is_status, patient=True)
    larger = asyncio.create_task(resize(world, pod, 24))
    await until(lambda: after.waiting)
    assert told(world, pod) == (8, 24, "Draining"), "the write under way is to say what is there already"
    assert after.deliver() == [200]
    await larger
    assert booked(world, pod) == (24, 24)
    assert late.deliver() == [409]
    after.lose()
    world.kube.heal()
    await agreed(world, pod)


async def test_what_was_booked_in_vain_is_no_room_for_the_next_try(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    node = world.agent.node
    world.kube.refuse(403, "Forbidden", "not now", match=is_status)
    drained = asyncio.Event()
    node.drain_unsettled = lambda *_: drained.wait()  # type: ignore[method-assign]  # the driver is silent
    with pytest.raises(Refusal) as first:
        await resize(world, pod, 64)
    assert first.value.code is Code.UNAVAILABLE
    assert booked(world, pod) == (16, 64)
    world.kube.reserve(promised("other", 48, 10))
    with pytest.raises(Refusal) as second:
        await resize(world, pod, 64)
    assert second.value.code is Code.CARD_FULL
    assert booked(world, pod) == (16, 64)
    del node.drain_unsettled  # type: ignore[attr-defined]
    drained.set()
    node.drain_wanted.set()
    await until(lambda: booked(world, pod) == (16, 16))
    await agreed(world, pod)


async def test_a_grow_does_not_put_in_force_what_another_one_has_booked(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    first = world.kube.hold_back(match=is_status, patient=True)
    overtaken = asyncio.create_task(resize(world, pod, 24))
    await until(lambda: first.waiting)
    await resize(world, pod, 8)
    larger = asyncio.create_task(resize(world, pod, 64))
    await until(lambda: booked(world, pod) == (8, 64))
    second = world.kube.hold_back(match=is_status, patient=True)
    first.deliver()
    with pytest.raises(Refusal) as stale:
        await overtaken
    assert stale.value.code is Code.STALE
    await until(lambda: second.waiting)
    assert booked(world, pod) == (8, 64), "the cluster has not been told"
    assert world.given(pod).cards[uuid_of(0)][0] == 8
    world.kube.heal()
    second.deliver()
    assert (await larger).state == "applied"
    await agreed(world, pod)
    assert booked(world, pod) == (64, 64)


async def test_a_grow_that_is_given_up_does_not_give_up_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    node, loop = world.agent.node, asyncio.get_running_loop()
    next_: list[asyncio.Task[Any]] = []
    crowded_out = node.core.ledger.crowded_out

    async def ask() -> None:
        wish = node.resize(world.slot(pod), models.Resize(cores=50), None)
        next_.append(asyncio.create_task(wish))
        for _ in range(10):  # until it is its turn, right after this step
            await asyncio.sleep(0)

    def meanwhile(waiting: Any) -> Any:
        refused = crowded_out(waiting)
        if refused and not next_:
            asyncio.run_coroutine_threadsafe(ask(), loop).result(10)
        return refused

    monkeypatch.setattr(node.core.ledger, "crowded_out", meanwhile)
    world.kube.reserve(promised("other", 32, 10))
    with pytest.raises(Refusal) as refused:
        await resize(world, pod, 64)
    assert refused.value.code is Code.CARD_FULL
    assert (await next_[0]).state == "applied"
    await agreed(world, pod)
    assert world.records()[world.slot(pod)].held == Share(16, 50)


async def test_an_agent_gives_a_sign_of_life_although_nothing_changes(world: World) -> None:
    pod = await world.run(growing(16))
    await agreed(world, pod)
    writer = world.agent.node.writer
    assert writer is not None
    before = seen(world).status.heartbeat

    def later() -> str:
        world.ahead += 31.0
        writer.touch()
        return seen(world).status.heartbeat

    await until(lambda: later() != before)


async def test_nothing_is_written_before_it_is_known_what_runs(world: World) -> None:
    """A status without a slot, from a ledger that was lost, would give its memory away."""
    pod = await world.run(growing(16))
    await agreed(world, pod)
    await world.stop()
    written = sum(map(is_status, world.kube.asked))
    world.kube.refuse(403, "Forbidden", "cannot list pods", times=100_000, match=is_pods)
    await world.start()
    writer = world.agent.node.writer
    assert writer is not None
    writer.patience = 0.3
    with pytest.raises(Refusal) as refused:
        await resize(world, pod, 32)
    assert refused.value.code is Code.UNAVAILABLE
    assert sum(map(is_status, world.kube.asked)) == written
    assert told(world, pod) == (16, 16, "Applied")
    world.kube.heal()
    await agreed(world, pod)
