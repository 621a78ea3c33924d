"""Which node takes a pod by the rule of placement: priced by the usual mix, packed or spread."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gaia_plugin.extender.choose import Choice, Chooser, scores
from gaia_plugin.extender.demand import demand_of
from gaia_plugin.kube.gpunode import Link
from gaia_plugin.kube.pods import Pod
from gaia_plugin.placement.cluster import Options, Rule
from tests.unit.extender.worlds import World, card, pod, reservation

HALF, QUARTER, EIGHTH = (32, 50), (16, 25), (8, 12)
WHOLE = (64, 100)
L40S = "NVIDIA L40S"
Free = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """Nodes by what their cards have free, the usual mix, a pod, and the node by each rule."""

    name: str
    nodes: dict[str, list[Free]]
    usual: list[Pod]
    wanted: Pod
    priced: str
    binpack: str
    spread: str
    models: dict[str, str] = field(default_factory=dict)


CASES = [
    Case(
        "a gap that no usual pod fits into goes first, although another is tighter",
        {"n1": [(24, 38)], "n2": [HALF]},
        [pod("u", *HALF)],
        pod("p", *EIGHTH),
        priced="n1", binpack="n1", spread="n2",
    ),
    Case(
        "room for a usual pod is kept, and the larger rest is broken instead",
        {"n1": [HALF], "n2": [(60, 94)]},
        [pod("u", *HALF)],
        pod("p", *QUARTER),
        priced="n2", binpack="n1", spread="n2",
    ),
    Case(
        "whole cards stay whole for those who want them",
        {"n1": [WHOLE], "n2": [(40, 62), HALF]},
        [pod("u", None, 100)],
        pod("p", *HALF),
        priced="n2", binpack="n1", spread="n2",
    ),
    Case(
        "a set of two is left to those who want two",
        {"n1": [WHOLE, WHOLE], "n2": [WHOLE, HALF, HALF]},
        [pod("u", None, 200)],
        pod("p", None, 100),
        priced="n2", binpack="n1", spread="n1",
    ),
    Case(
        "a scarce model is left to those who take no other",
        {"n1": [HALF], "n2": [WHOLE, WHOLE]},
        [pod("u", *HALF, annotations={"gaia.io/gpu-model": "L40S"}), pod("v", *HALF)],
        pod("p", *HALF),
        priced="n2", binpack="n1", spread="n2",
        models={"n1": L40S},
    ),
]  # fmt: skip


def world_of(case: Case, rule: Rule) -> World:
    world = World(options=Options(rule))
    for name, frees in case.nodes.items():
        cards = [card(f"{name}-{at}", model=case.models.get(name, "NVIDIA A100")) for at in range(len(frees))]
        taken = [
            reservation(f"{name}{at}", f"{name}-{at}", 64 - units, 100 - cores)
            for at, (units, cores) in enumerate(frees)
            if (units, cores) != WHOLE
        ]
        world.node(name, cards, reservations=taken)
    world.learn(*case.usual, times=40)
    return world


def choose(world: World, item: Pod, chooser: Chooser | None = None) -> Choice:
    return (chooser or world.chooser).choose(demand_of(item), sorted(world.snapshot.nodes))


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rule_decides(case: Case, rule: Rule) -> None:
    world = world_of(case, rule)
    assert choose(world, case.wanted).node == getattr(case, rule.value)
    found = scores(world.chooser, demand_of(case.wanted), list(case.nodes))
    assert found[getattr(case, rule.value)] == 10


def test_the_card_on_the_node_goes_by_the_prices_too() -> None:
    world = World()
    taken = [reservation("x", "a", 32, 50), reservation("y", "b", 4, 6)]
    world.node("n1", [card("a"), card("b")], reservations=taken)
    item = pod("p", *QUARTER)
    assert [part.card for part in choose(world, item).where["main"]] == ["a"]
    world.learn(pod("u", *HALF), times=40)
    assert [part.card for part in choose(world, item).where["main"]] == ["b"]


def test_several_containers_are_packed_as_tightly_as_can_be_by_every_rule() -> None:
    item = pod("p", containers={"one": (64, 100), "two": (32, 50), "three": (32, 50)})
    for rule in Rule:
        world = World(options=Options(rule))
        world.node("n1", [card("a"), card("b")])
        assert choose(world, item).node == "n1"


def test_a_node_that_takes_nothing_now_counts_for_nothing() -> None:
    world = World()
    cards = [card("a"), card("b")]
    world.node("n1", cards, reservations=[reservation("x", "a", 48, 75)])
    world.node("n2", [card("c")])
    item = pod("p", *QUARTER)
    assert choose(world, item).node == "n1"
    world.node("n1", cards, reservations=[reservation("x", "a", 48, 75)], ready=False, version=2)
    assert choose(world, item).node == "n2"
    assert len(world.chooser.fleet.now()) == 1
    world.node("n1", cards, reservations=[reservation("x", "a", 48, 75)], version=3)
    assert choose(world, item).node == "n1"
    world.machine("n1", there=False)
    assert choose(world, item).node == "n2"
    world.machine("n1")
    assert choose(world, item).node == "n1"


def test_a_node_goes_silent_without_any_event_and_comes_back_with_one() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("x", "a", 48, 75)])
    world.node("n2", [card("b")])
    world.now += 60
    beat = "2026-11-29T12:01:00Z"
    world.node("n2", [card("b")], heartbeat=beat, version=2)
    assert choose(world, pod("p", *QUARTER)).node == "n1"
    world.now += 50
    assert len(world.chooser.fleet.now()) == 1
    assert choose(world, pod("p", *QUARTER)).node == "n2"
    world.now += 60
    assert choose(world, pod("p", *QUARTER)).node is None
    world.node("n1", [card("a")], reservations=[reservation("x", "a", 48, 75)], heartbeat=beat, version=3)
    assert choose(world, pod("p", *QUARTER)).node == "n1"


def test_an_object_made_anew_with_an_old_heartbeat_is_silent_when_that_says_so() -> None:
    world = World()
    world.node("n1", [card("a")])
    assert choose(world, pod("p", *QUARTER)).node == "n1"
    world.node("n1", [card("a")], uid="again", heartbeat="2026-11-29T11:58:40Z")
    assert choose(world, pod("p", *QUARTER)).node == "n1"
    world.now += 30
    assert choose(world, pod("p", *QUARTER)).node is None


def test_links_that_change_alone_count_at_once() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")])
    world.node("n2", [card("c"), card("d")])
    item = pod("p", None, 200)
    assert choose(world, item).node == "n1"
    tied = [card(one, links=[Link(two, "NVLink", 4)]) for one, two in (("c", "d"), ("d", "c"))]
    world.node("n2", tied, version=2)
    assert choose(world, item).node == "n2"


@pytest.mark.parametrize(("units", "cores"), [(262144, 100), (64, 50), (0, 100)])
def test_a_card_of_impossible_amounts_is_no_card(units: int, cores: int) -> None:
    world = World()
    odd = card("a", units=units)
    odd = type(odd)(odd.uuid, 0, odd.model, True, type(odd.capacity)(units, cores), odd.free)
    world.node("n1", [odd])
    assert choose(world, pod("p", *QUARTER)).failed == {"n1": "node(s) without a healthy GPU."}
