"""Pods that wait are told when there is room: soon, and only as many as it is enough for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gaia_plugin.extender.demand import demand_of
from gaia_plugin.extender.dropping import retry_key
from gaia_plugin.extender.retry import Refusals, Retrier
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.replica import Change
from tests.support.kubeapi import until
from tests.unit.extender.conftest import Ask, Site
from tests.unit.extender.worlds import World, card, pod, reservation


@dataclass
class Patches:
    """An API server that notes who is annotated, and shows it as a watch would."""

    world: World
    told: list[str] = field(default_factory=list)

    async def patch(self, path: str, body: dict[str, Any], *, timeout: float) -> bytes:
        name = path.rsplit("/", 1)[1]
        assert body["metadata"]["uid"] == name
        self.told.append(name)
        return json.dumps({}).encode()


@dataclass
class Waiting:
    """A world with pods that were refused."""

    active: bool = True
    world: World = field(default_factory=World)
    refusals: Refusals = field(default_factory=Refusals)
    pauses: list[float] = field(default_factory=list)
    patches: Patches = field(init=False)
    retrier: Retrier = field(init=False)

    def __post_init__(self) -> None:
        self.patches = Patches(self.world)
        self.retrier = Retrier(
            self.patches, self.world.snapshot, self.world.chooser, self.refusals,
            active=lambda: self.active, pause=self.pause,
        )  # fmt: skip

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.world.now += seconds

    def refuse(self, *items: Pod) -> None:
        for item in items:
            self.world.pod(item)
            choice = self.world.chooser.choose(demand_of(item), sorted(self.world.snapshot.nodes))
            self.refusals.note(item.uid, refused=choice.node is None)

    async def tell(self) -> list[str]:
        self.patches.told.clear()
        await self.retrier.tell()
        return list(self.patches.told)


def full(world: World, units: int = 64, cores: int = 100) -> None:
    taken = [reservation("x", "a", units, cores)] if units else []
    world.node("n1", [card("a")], reservations=taken)


async def test_nobody_is_told_while_there_is_no_room() -> None:
    waiting = Waiting()
    full(waiting.world)
    waiting.refuse(pod("p1", 16, 25))
    assert await waiting.tell() == []


async def test_as_many_are_told_as_there_is_room_for_the_first_come_first() -> None:
    waiting = Waiting()
    full(waiting.world)
    waiting.refuse(*(pod(f"p{index}", 16, 25) for index in range(8)))
    waiting.world.now += 1
    full(waiting.world, 32, 50)
    assert await waiting.tell() == ["p0", "p1"]
    # room again, and they are still there: others are told first
    waiting.world.now += 1
    full(waiting.world, 16, 25)
    assert await waiting.tell() == ["p2", "p3", "p4"]


async def test_a_pod_that_was_never_refused_is_left_to_the_scheduler() -> None:
    waiting = Waiting()
    full(waiting.world)
    waiting.world.pod(pod("new", 16, 25))
    waiting.world.now += 1
    full(waiting.world, 0)
    assert await waiting.tell() == []
    waiting.retrier.begin()
    assert await waiting.tell() == ["new"]


async def test_a_small_pod_is_told_where_a_large_one_has_no_room() -> None:
    waiting = Waiting()
    full(waiting.world)
    waiting.refuse(pod("large", 64, 100), pod("small", 8, 10))
    waiting.world.now += 1
    full(waiting.world, 48, 60)
    assert await waiting.tell() == ["small"]


async def test_who_is_told_in_vain_is_told_less_and_less_often() -> None:
    waiting = Waiting()
    full(waiting.world)
    waiting.refuse(pod("p1", 16, 25))
    waiting.world.now += 1
    full(waiting.world, 0)
    moments = []
    for _ in range(2000):
        waiting.world.now += 1
        waiting.world.node("n1", [card("a")], heartbeat=f"{waiting.world.now}")
        if await waiting.tell():
            moments.append(waiting.world.now)
    distances = [later - earlier for earlier, later in pairwise(moments)]
    assert distances[:5] == [10, 20, 40, 80, 160]
    assert distances[5:] == [300] * len(distances[5:])


async def test_a_pod_that_is_bound_or_gone_is_forgotten() -> None:
    waiting = Waiting()
    full(waiting.world)
    item = pod("p1", 16, 25)
    waiting.refuse(item)
    waiting.refusals.pod_changed(Change("gone", item, item))
    assert waiting.refusals.uids == set()


async def test_a_standby_leaves_it_to_the_replica_that_is_asked() -> None:
    waiting = Waiting(active=False)
    full(waiting.world)
    items = [pod(f"p{index}", 16, 25) for index in range(2)]
    waiting.refuse(*items)
    waiting.world.now += 1
    full(waiting.world, 0)

    async def other_tells(seconds: float) -> None:
        waiting.world.pod(pod("p0", 16, 25, annotations={retry_key(): "told"}, version=2))

    waiting.retrier._pause = other_tells
    assert await waiting.tell() == ["p1"]


async def test_a_refused_pod_is_told_by_the_running_extender(site: Site, filter_pod: Ask) -> None:
    site.node("n1", [card("a")], reservations=[reservation("x", "a", 64, 100, pod="default/x")])
    site.pod("x", 64, 100, node="n1")
    site.pod("p1", 16, 25)
    extender = await site.start()
    assert filter_pod(extender, "p1", ["n1"])["NodeNames"] == []
    assert retry_key() not in site.kube.pod("p1")["metadata"]["annotations"]
    site.kube.remove("x")
    await until(lambda: retry_key() in site.kube.pod("p1")["metadata"]["annotations"], "told")
    assert filter_pod(extender, "p1", ["n1"])["NodeNames"] == ["n1"]
