"""What is learnt from pods that come and go, and when prices follow."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.extender.demand import demand_of
from gaia_plugin.extender.settings import read_settings
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.replica import Change
from gaia_plugin.placement.cluster.fleet import Fleet, Prices
from tests.support.kubeapi import until
from tests.unit.extender.conftest import Ask, Site, bind_pod
from tests.unit.extender.worlds import World, card, pod, reservation


def tell(world: World, *items: Pod, kind: Any = "changed") -> None:
    for item in items:
        world.habits.pod_changed(Change(kind, item, None))


def learnt(world: World) -> int:
    return sum(seen.times for seen in world.chooser.fleet.mix) - 1  # it begins with one whole card


@pytest.mark.parametrize(
    ("told", "times", "churn"),
    [
        pytest.param([pod("p", 8, 10)], 1, 0.0, id="waits"),
        pytest.param([pod("p", 8, 10)] * 3, 1, 0.0, id="told again"),
        pytest.param([pod("p", 8, 10), pod("p", 8, 10, node="n1")], 1, 0.0, id="is bound"),
        pytest.param([pod("p", 8, 10, node="n1")], 1, 0.0, id="ran before this start"),
        pytest.param([pod("p", 8, 10, node="n1", phase="Failed")], 0, 0.0, id="had ended before this start"),
        pytest.param([pod("p", 8, 10), pod("q", 8, 10)], 2, 0.0, id="two pods"),
        pytest.param(
            [pod("p", 8, 10, node="n1")] + [pod("p", 8, 10, node="n1", phase="Succeeded")] * 2,
            1, 1 / 2, id="has ended",
        ),
        pytest.param([pod("p", 8, 10), pod("p", 8, 10, phase="Failed")], 1, 0.0, id="never was anywhere"),
        pytest.param([pod("p")], 0, 0.0, id="asks for nothing"),
        pytest.param([pod("p", 4, 150)], 0, 0.0, id="means nothing"),
    ],
)  # fmt: skip
def test_each_pod_counts_once(told: list[Pod], times: int, churn: float) -> None:
    world = World()
    tell(world, *told)
    assert (learnt(world), world.chooser.fleet.mix.churn) == (times, churn)


def test_a_pod_that_is_gone_has_left_once_and_its_name_may_come_again() -> None:
    world = World()
    item = pod("p", 8, 10, node="n1")
    tell(world, item, pod("q", 8, 10))
    tell(world, item, kind="gone")
    assert world.chooser.fleet.mix.churn == 1 / 3
    tell(world, item)
    assert learnt(world) == 3


async def test_prices_are_made_beside_the_questions_and_never_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    taken = [reservation("x", "a", 32, 50), reservation("y", "b", 4, 6)]
    world.node("n1", [card("a"), card("b")], reservations=taken)
    makers: list[bool] = []
    prepare = Fleet.prepare

    def noting(self: Fleet) -> Callable[[], Prices]:
        made = prepare(self)

        def make() -> Prices:
            makers.append(threading.current_thread() is threading.main_thread())
            return made()

        return make

    monkeypatch.setattr(Fleet, "prepare", noting)

    def chosen() -> str:
        (part,) = world.chooser.choose(demand_of(pod("p", 16, 25)), ["n1"]).where["main"]
        return part.card

    running = asyncio.create_task(world.habits.run())
    tell(world, *(pod(f"u{number}", 32, 50, node="n1") for number in range(60)))
    assert world.habits.due.is_set()
    assert (chosen(), makers) == ("a", [])
    await until(lambda: chosen() == "b", "new prices")
    assert makers == [False]
    running.cancel()


async def test_a_renewal_that_fails_leaves_the_prices_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.node("n1", [card("a")])
    tried = []

    def fails(self: Fleet) -> Callable[[], Prices]:
        tried.append(1)
        raise ArithmeticError("no solution")

    monkeypatch.setattr(Fleet, "prepare", fails)
    running = asyncio.create_task(world.habits.run())
    for round_ in range(2):
        world.habits.due.set()
        await until(lambda round_=round_: len(tried) > round_, "tried")  # type: ignore[misc]
    assert world.chooser.choose(demand_of(pod("p", 16, 25)), ["n1"]).node == "n1"
    running.cancel()


async def test_bind_takes_the_card_that_filter_had_in_mind(site: Site, filter_pod: Ask) -> None:
    taken = [
        reservation("x", "a", 24, 38, pod="default/x"),
        reservation("y", "b", 4, 6, pod="default/y"),
    ]
    site.node("n1", [card("a"), card("b")], reservations=taken)
    site.pod("x", 24, 38, node="n1")
    site.pod("y", 4, 6, node="n1")
    for number in range(60):
        site.pod(f"u{number}", 40, 62)
    site.pod("p1", 16, 25)
    extender = await site.start()
    await until(lambda: not extender.habits.due.is_set(), "prices asked for")
    fleet = extender.chooser.fleet

    def where() -> list[str]:
        demand = demand_of(extender.snapshot.waiting["p1"])
        return [part.card for part in extender.chooser.choose(demand, ["n1"]).where["main"]]

    await until(lambda: where() == ["b"], "prices")
    assert fleet.mix.churn == 0
    assert filter_pod(extender, "p1", ["n1"])["NodeNames"] == ["n1"]
    assert await bind_pod(extender, "p1", "n1") == ""
    assert site.reservations()["p1"] == [("b", 16, 25)]


def test_a_rule_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_PLACEMENT", "random")
    with pytest.raises(Unusable, match=r"GAIA_PLACEMENT: .*'priced', 'binpack' or 'spread'"):
        read_settings()
    monkeypatch.setenv("GAIA_PLACEMENT", "spread")
    assert read_settings().placement == "spread"


def test_without_numpy_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None; sys.argv = ['gaia', 'extender'];"
        "from gaia_plugin.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.returncode == 1
    assert done.stderr == (
        "gaia: This command needs the node part of Gaia (numpy is missing). Install it with "
        "pip install 'gaia-vgpu[node]'.\n"
    )
