"""Which node is chosen, and which cards there."""

from __future__ import annotations

import pytest

from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import CardState, Request
from gaia_plugin.placement.cluster import Ask, Fleet, NodeState, Options, Rule, kinds
from gaia_plugin.shares import Share
from tests.unit.placement.cards import A100, T4
from tests.unit.placement.nodes import ask, fleet, node, order

IDLE = (94, 100)
HALVES = {ask(47, 50, cpu=4000, memory=8192): 100}


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        pytest.param([node("b"), node("a")], ask(16, 25), "ab", id="equals: the first name"),
        pytest.param(
            [node("a", [IDLE]), node("b", [(47, 50)])], ask(47, 50), "ba", id="a gap of the right size"
        ),
        pytest.param(
            [node("a", [(60, 60)]), node("b", [(40, 40)])],
            ask(16, 25),
            "ba",
            id="what no half fits into any more",
        ),
        pytest.param([node("a", [(15, 90)]), node("b", [(90, 24)])], ask(16, 25), "", id="both must fit"),
        pytest.param(
            [node("a", model=T4), node("b"), node("c", model="NVIDIA L40S")],
            ask(16, 25, models="T4 L40S"),
            "ac",
            id="only models asked for",
        ),
        pytest.param([node("a", cpu=999), node("b", cpu=1000)], ask(16, cpu=1000), "b", id="no CPU left"),
        pytest.param(
            [node("a", memory=999), node("b", memory=1000)], ask(16, memory=1000), "b", id="no memory left"
        ),
        pytest.param(
            [node("a", cpu=40_000), node("b", cpu=4000)],
            ask(47, 50, cpu=1000),
            "ba",
            id="a pod with little CPU to the node with little CPU",
        ),
        pytest.param([node("a", []), node("b", cpu=9)], ask(cpu=10), "a", id="no GPU asked for"),
        pytest.param(
            [node("a"), node("b", [])], ask(cpu=90_000), "ba", id="no GPU asked for: cards keep their host"
        ),
        pytest.param(
            [node("a", [IDLE] * 3), node("b", [IDLE] * 4)], ask(None, 400), "b", id="several whole cards"
        ),
        pytest.param(
            [node("a", [IDLE]), node("b", [(50, 50), (50, 50)])],
            ask(40, 40, 2),
            "b",
            id="parts of distinct cards",
        ),
        pytest.param([node("a")], ask(40, None, 3), "", id="an amount that cannot be split"),
        pytest.param([node("a")], ask(None, 50), "", id="compute alone means nothing"),
        pytest.param([], ask(16), "", id="no nodes"),
    ],
)
def test_nodes_are_ordered_by_what_they_lose(nodes: list[NodeState], wanted: Ask, expected: str) -> None:
    assert order(fleet(*nodes, mix=HALVES), wanted) == expected
    assert order(fleet(*nodes[::-1], mix=HALVES), wanted) == expected
    chosen = fleet(*nodes, mix=HALVES).choose(wanted)
    assert (chosen.node if chosen else "") == expected[:1]


def test_memory_that_compute_has_stranded_goes_first() -> None:
    mix = {ask(70, 30): 10, ask(20, 70): 10}
    found = fleet(node("a", [IDLE]), node("b", [(94, 30)]), node("c", [(24, 100)]), mix=mix)
    assert order(found, ask(70, 30)) == "ba"
    assert order(found, ask(20, 70)) == "ca"


def test_slices_are_those_of_the_same_function_that_a_node_uses() -> None:
    chosen = fleet(node("a", [IDLE, (60, 60), (47, 50)]), mix=HALVES).choose(ask(47, 50))
    assert chosen is not None
    assert [(one.card, one.share) for one in chosen.slices[0]] == [("a2", Share(47, 50))]


def test_parts_of_a_set_of_eight_are_taken_before_the_set_is_broken() -> None:
    mix = {ask(None, 800): 10, ask(None, 100): 10}
    nodes = [node("a"), node("b", [IDLE] * 7)]
    assert order(fleet(*nodes, mix=mix), ask(None, 100)) == "ba"
    # Where nobody asks for eight, the node with less left over is only the better fit; one is lost on either.
    assert order(fleet(node("a"), mix=mix), ask(None, 100)) == "a"


def test_a_reserve_yields_where_no_other_node_would_do() -> None:
    mix = {ask(None, 800): 10}
    assert order(fleet(node("a"), mix=mix), ask(16, 25)) == "a"


def test_where_pods_leave_a_whole_card_is_not_broken_for_a_better_gap() -> None:
    mix = {ask(47, 50): 50, ask(28, 30): 50}
    nodes = [node("a", [IDLE]), node("b", [(66, 70)])]
    filling, churning = fleet(*nodes, mix=mix), fleet(*nodes, mix=mix)
    for _ in range(100):
        churning.ended()
    churning.renew()
    assert order(churning, ask(47, 50)) == "ba"
    assert order(filling, ask(47, 50)) == "ab"


def test_scarce_models_are_left_to_those_who_need_them() -> None:
    mix = {ask(None, 100, models="T4"): 10, ask(None, 100): 10}
    nodes = [node("a", [IDLE], model=T4), *(node(name) for name in "bc")]
    assert order(fleet(*nodes, mix=mix), ask(None, 100)) == "bca"
    assert order(fleet(*nodes, mix=mix), ask(None, 100, models="T4")) == "a"


def test_what_is_scarce_changes_with_the_nodes() -> None:
    mix = {ask(23, 25, models="T4"): 4, ask(23, 25): 100}
    found = fleet(node("a", [IDLE], model=T4), node("b"), node("c"), mix=mix)
    for name in "bc":
        found.drop(name)
    assert order(found, ask(23, 25)) == "a"
    for name in "bc":
        found.put(node(name))
    assert order(found, ask(23, 25)) == "bca"


def test_a_slice_that_only_large_cards_can_hold_makes_them_scarce() -> None:
    mix = {ask(200, 50): 10, ask(16, 25): 10}
    nodes = [node("a", [(318, 100)], units=318, model="NVIDIA H100 80GB HBM3"), node("b")]
    assert order(fleet(*nodes, mix=mix), ask(16, 25)) == "ba"


def test_several_cards_go_where_they_are_closest() -> None:
    def tied(name: str, level: Level, free: list[tuple[int, int]]) -> NodeState:
        return node(name, free, topology=Topology.of([(f"{name}0", f"{name}1", Tie(level))]))

    nodes = [
        tied("a", Level.ANY, [IDLE, IDLE]),
        tied("b", Level.SWITCH, [IDLE, IDLE]),
        tied("c", Level.NVLINK, [IDLE, IDLE, IDLE]),
        tied("d", Level.NVLINK, [IDLE, (94, 99), IDLE]),
        tied("e", Level.NUMA, [IDLE, IDLE]),
    ]
    assert order(fleet(*nodes), ask(None, 200)) == "cbead"
    chosen = fleet(*nodes).choose(ask(None, 200))
    assert chosen is not None
    assert [one.card for one in chosen.slices[0]] == ["c0", "c1"]


@pytest.mark.parametrize(
    ("rule", "expected", "card"),
    [(Rule.PRICED, "bca", "b1"), (Rule.BINPACK, "bca", "b1"), (Rule.SPREAD, "acb", "a0")],
)
def test_an_operator_may_pack_or_spread(rule: Rule, expected: str, card: str) -> None:
    nodes = [node("a", [IDLE, IDLE]), node("b", [(50, 50), (20, 25)]), node("c", [(60, 60), (60, 60)])]
    found = fleet(*nodes, options=Options(rule=rule), mix=HALVES)
    assert order(found, ask(16, 25)) == expected
    chosen = found.choose(ask(16, 25))
    assert chosen is not None
    assert chosen.slices[0][0].card == card


def test_spreading_takes_the_emptiest_card_of_a_node() -> None:
    found = fleet(node("a", [(60, 60), (80, 80), (20, 25)]), options=Options(rule=Rule.SPREAD))
    chosen = found.choose(ask(16, 25))
    assert chosen is not None
    assert chosen.slices[0][0].card == "a1"


def test_containers_of_one_pod_go_to_one_node_together() -> None:
    nodes = [node("a", [(40, 40)]), node("b", [(40, 40), (30, 30)]), node("c", [(60, 60)])]
    found = fleet(*nodes)
    wanted = Ask((Request(30, 30), Request(30, 30)))
    assert order(found, wanted) == "cb"
    chosen = found.choose(wanted, "ab")
    assert chosen is not None
    assert [one.card for slices in chosen.slices for one in slices] == ["b1", "b0"]


@pytest.mark.parametrize(
    ("free", "requests", "together"),
    [
        ([IDLE, IDLE], (Request(47, 50), Request(47, 50), Request(94, 100)), True),
        ([IDLE, IDLE], (Request(94, 100), Request(94, 100), Request(1, 1)), False),
        ([IDLE, (93, 99)], (Request(None, 100), Request(None, 100)), False),
        ([(50, 50)], (Request(30, 20), Request(30, 20)), False),
        ([(60, 50)], (Request(30, 30), Request(30, 30)), False),
        ([IDLE], (Request(1, 1), Request(1, 1, models=frozenset({"T4"}))), False),
    ],
)
def test_nodes_whose_sums_do_not_reach_for_all_containers_are_not_even_offered(
    free: list[tuple[int, int]], requests: tuple[Request, ...], together: bool
) -> None:
    assert list(fleet(node("a", free)).order(Ask(requests))) == (["a"] if together else [])


def test_prices_made_apart_are_those_made_on_the_spot() -> None:
    apart, here = (fleet(node("a", [(47, 50)]), node("b", [(90, 90)])) for _ in range(2))
    for each in (apart, here):
        for wish in HALVES:
            for _ in range(40):
                each.mix.see(wish)
    make = apart.prepare()
    apart.put(node("c", [(20, 20)], model=T4))
    here.put(node("c", [(20, 20)], model=T4))
    assert order(apart, ask(16, 25)) != "bac"
    apart.adopt(make())
    here.renew()
    assert list(apart.ranked(ask(16, 25))) == list(here.ranked(ask(16, 25)))


@pytest.mark.parametrize("units", [(30, 60), (60, 30)])
def test_a_small_slice_does_not_take_the_only_place_of_a_large_one(units: tuple[int, int]) -> None:
    found = fleet(node("a", [(60, 60), (33, 33)]), mix={ask(33, 33): 9})
    chosen = found.choose(Ask(tuple(Request(each, each) for each in units)))
    assert chosen is not None
    assert [slices[0].share.units for slices in chosen.slices] == list(units)
    assert {slices[0].share.units: slices[0].card for slices in chosen.slices} == {60: "a0", 30: "a1"}


def test_only_nodes_that_were_offered_are_taken() -> None:
    found = fleet(*(node(name) for name in "abc"))
    assert [chosen.node for chosen in found.ranked(ask(16), ["c", "nobody", "b"])] == ["b", "c"]
    assert found.choose(ask(16), []) is None


def test_sick_cards_and_overbooked_cards_take_nothing() -> None:
    whole = Share(94, 100)
    cards = (
        CardState("a0", A100, whole, whole, healthy=False),
        CardState("a1", A100, whole, Share(-3, 120)),
        CardState("a2", "", Share(0, 100), Share(0, 100)),
    )
    assert fleet(NodeState("a", cards, 1000, 1000)).choose(ask(1, 1)) is None


def test_nodes_come_change_and_go() -> None:
    found = fleet(node("a", [(10, 10)]))
    assert found.choose(ask(16, 25)) is None
    found.put(node("b", [(20, 30)]))
    found.put(node("a", [(30, 30)]))
    assert order(found, ask(16, 25)) == "ba"
    found.drop("b")
    found.drop("b")
    assert (order(found, ask(16, 25)), len(found), "b" in found) == ("a", 1, False)
    for name in "cdefghijklmnopqrstuvwxyz":
        found.put(node(name, [(20, 30)] * 12, model=T4))
    assert order(found, ask(16, 25)) == "acdefghijklmnopqrstuvwxyz"


def test_asking_changes_nothing() -> None:
    found = fleet(*(node(name, [(60, 60), IDLE]) for name in "abc"), mix=HALVES)
    first = list(found.ranked(ask(16, 25)))
    for wanted in (ask(94, 100), ask(None, 200), ask(47, 50)):
        found.choose(wanted)
    assert [list(found.ranked(ask(16, 25))) for _ in range(3)] == [first] * 3
    assert list(fleet(*(node(n, [(60, 60), IDLE]) for n in "cba"), mix=HALVES).ranked(ask(16, 25))) == first


@pytest.mark.parametrize("many", [1, 10**9])
def test_nodes_in_the_same_state_are_looked_at_once_and_ordered_as_ever(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "_MANY", many)
    tied = Topology.of([("x0", "x1", Tie(Level.SWITCH))])
    found = fleet(mix=HALVES)
    for number in range(90):
        free = [IDLE, (60, 60)] if number % 3 else [(60, 60), IDLE]
        found.put(node(f"{number:02}", free, cpu=4000 if number % 5 else 90_000))
    found.put(NodeState("x", node("x", [IDLE, IDLE]).cards, 9000, 9000, tied))
    for number in range(0, 90, 2):
        found.drop(f"{number:02}")
    names = [chosen.node for chosen in found.ranked(ask(47, 50, cpu=3000))]
    poor = [f"{n:02}" for n in range(1, 90, 2) if n % 5]
    rich = [f"{n:02}" for n in range(1, 90, 2) if not n % 5]
    assert names == ["x", *poor, *rich]
    assert next(chosen.node for chosen in found.ranked(ask(30, 30, 2))) == "x"


def test_prices_follow_what_is_asked_for() -> None:
    # A gap of 30 beside a card in use is worth something only once people ask for 30.
    found = Fleet()
    for state in (node("a", [(28, 30)]), node("b", [(18, 20)])):
        found.put(state)
    for _ in range(50):
        found.learn(ask(28, 30))
    assert order(found, ask(9, 10)) == "ba"


def test_thousands_of_kinds_are_not_all_remembered() -> None:
    found = fleet(node("a", [(94, 100)] * 4, cpu=5000))
    for cpu in range(2000):
        assert found.choose(ask(1, 1, cpu=cpu)) is not None
    assert len(found._kinds) <= 512
