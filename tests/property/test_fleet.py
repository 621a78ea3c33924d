"""A cluster under whatever comes, changes and goes: against a fleet built anew, and against the rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import CardState, Request, accepts, cards_wanted
from gaia_plugin.placement.cluster import Ask, Chosen, Fleet, Mix, NodeState, Options, Rule
from gaia_plugin.placement.cluster.packing import Size, filling, prices
from gaia_plugin.shares import Share

MODELS = {"A100": 12, "T4": 6}
NAMES = "abcdef"

requests = st.builds(
    Request,
    memory_units=st.none() | st.integers(0, 14),
    cores=st.none() | st.sampled_from([1, 10, 25, 50, 75, 100, 200, 300]),
    count=st.sampled_from([1, 1, 1, 2, 3]),
    models=st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"A100"}), frozenset({"T4"})]),
)
asks = st.builds(
    Ask,
    st.lists(requests, min_size=0, max_size=2).map(tuple) | requests.map(lambda one: (one,)),
    st.integers(0, 6),
    st.integers(0, 6),
)
mixes = st.dictionaries(asks, st.integers(1, 20), max_size=8)
options = st.sampled_from(Rule).map(lambda one: Options(rule=one))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeState:
    """An idle node of one or two models, some of its cards sick, tied in some way."""
    cards = []
    for number in range(draw(st.sampled_from([0, 1, 2, 2, 3, 4]))):
        model = draw(st.sampled_from(sorted(MODELS)))
        whole = Share(MODELS[model], 100)
        cards.append(
            CardState(
                f"{name}{number}", model, whole, whole, draw(st.sampled_from([True, True, True, False]))
            )
        )
    ties = [
        (a.uuid, b.uuid, Tie(draw(st.sampled_from(Level))))
        for a, b in product(cards, cards)
        if a.uuid < b.uuid
    ]
    return NodeState(
        name, tuple(cards), draw(st.integers(0, 20)), draw(st.integers(0, 20)), Topology.of(ties)
    )


def taken(node: NodeState, ask: Ask, chosen: Chosen, sign: int) -> NodeState:
    """Return a node after a pod came (-1) or left (1)."""
    cards = node.cards
    for slices in chosen.slices:
        part = {one.card: one.share for one in slices}
        cards = tuple(
            replace(c, free=c.free + part[c.uuid] if sign > 0 else c.free - part[c.uuid])
            if c.uuid in part
            else c
            for c in cards
        )
    return replace(node, cards=cards, cpu=node.cpu + sign * ask.cpu, memory=node.memory + sign * ask.memory)


class Cluster(RuleBasedStateMachine):
    """Nodes come, change, go; pods come and leave; the mix is learnt."""

    running = Bundle("running")

    @initialize(chosen_options=options, mix=mixes, data=st.data())
    def begin(self, chosen_options: Options, mix: dict[Ask, int], data: st.DataObject) -> None:
        self.mix = Mix(mix)
        self.fleet = Fleet(chosen_options, self.mix)
        self.nodes: dict[str, NodeState] = {}
        for name in data.draw(st.permutations(NAMES))[: data.draw(st.integers(1, 4))]:
            self.nodes[name] = data.draw(nodes(name))
            self.fleet.put(self.nodes[name])

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def join(self, name: str, data: st.DataObject) -> None:
        if name not in self.nodes:
            self.nodes[name] = data.draw(nodes(name))
            self.fleet.put(self.nodes[name])

    @rule(name=st.sampled_from(NAMES), like=st.sampled_from(NAMES))
    def join_as_a_twin(self, name: str, like: str) -> None:
        if name not in self.nodes and like in self.nodes:
            self.nodes[name] = replace(self.nodes[like], name=name)
            self.fleet.put(self.nodes[name])

    @rule(name=st.sampled_from(NAMES))
    def go(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.fleet.drop(name)

    @rule(ask=asks)
    def learn(self, ask: Ask) -> None:
        self.mix.see(ask)
        self.fleet.renew()

    @rule()
    def churn(self) -> None:
        self.fleet.ended()
        self.fleet.renew()

    @rule(name=st.sampled_from(NAMES), card=st.integers(0, 3))
    def fall_sick_or_recover(self, name: str, card: int) -> None:
        node = self.nodes.get(name)
        if node is not None and card < len(node.cards):
            cards = list(node.cards)
            cards[card] = replace(cards[card], healthy=not cards[card].healthy)
            self.nodes[name] = replace(node, cards=tuple(cards))
            self.fleet.put(self.nodes[name])

    @rule(target=running, ask=asks)
    def come(self, ask: Ask) -> tuple[Ask, Chosen] | None:
        before = list(self.fleet.ranked(ask))
        chosen = self.fleet.choose(ask)
        assert chosen == (before[0] if before else None)
        names, able = list(self.fleet.order(ask)), [one.node for one in before]
        assert [name for name in names if name in able] == able
        assert len(ask.requests) > 1 or names == able
        if chosen is None:
            return None
        node = self.nodes[chosen.node]
        self._fits(ask, chosen, node)
        self.nodes[chosen.node] = taken(node, ask, chosen, -1)
        self.fleet.put(self.nodes[chosen.node])
        self.fleet.choose(ask)
        # Freed after it was placed, everything is as if it had never come.
        self.fleet.put(node)
        assert list(self.fleet.ranked(ask)) == before
        self.fleet.put(self.nodes[chosen.node])
        return ask, chosen

    @rule(pod=consumes(running))
    def leave(self, pod: tuple[Ask, Chosen] | None) -> None:
        if pod is not None and pod[1].node in self.nodes:
            ask, chosen = pod
            node = self.nodes[chosen.node]
            if {one.card for part in chosen.slices for one in part} <= {c.uuid for c in node.cards}:
                back = taken(node, ask, chosen, 1)
                if all(
                    card.free.fits(card.capacity) for card in back.cards
                ):  # else another node of that name
                    self.nodes[chosen.node] = back
                    self.fleet.put(back)

    @rule(ask=asks, offered=st.sets(st.sampled_from(NAMES)))
    def compare_with_one_built_anew(self, ask: Ask, offered: set[str]) -> None:
        """The same nodes in another order, told to a fleet that knows no history, give the same answers."""
        anew = Fleet(self.fleet.options, self.mix)
        for name in sorted(self.nodes, reverse=True):
            anew.put(self.nodes[name])
        here = list(self.fleet.ranked(ask))
        assert here == list(anew.ranked(ask))
        assert len({chosen.node for chosen in here}) == len(here)
        assert [one for one in here if one.node in offered] == list(self.fleet.ranked(ask, offered))

    @invariant()
    def nothing_is_above_its_capacity(self) -> None:
        for node in getattr(self, "nodes", {}).values():
            assert node.cpu >= 0
            assert node.memory >= 0
            assert all(Share().fits(card.free) for card in node.cards)

    def _fits(self, ask: Ask, chosen: Chosen, node: NodeState) -> None:
        cards = {card.uuid: card for card in node.cards}
        assert len(chosen.slices) == len(ask.requests)
        for request, slices in zip(ask.requests, chosen.slices, strict=True):
            assert len({one.card for one in slices}) == len(slices) == cards_wanted(request)
            for one in slices:
                assert cards[one.card].healthy
                assert accepts(request.models, cards[one.card].model)
        after = taken(node, ask, chosen, -1)
        assert all(Share().fits(card.free) for card in after.cards)


Cluster.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestCluster = Cluster.TestCase

sizes = st.tuples(st.integers(1, 10), st.integers(1, 10))


@settings(max_examples=60, deadline=None)
@given(demand=st.dictionaries(sizes, st.integers(1, 30), min_size=1, max_size=5))
def test_no_set_that_fits_on_a_card_costs_more_and_the_mix_no_more_than_its_cards(
    demand: dict[Size, int],
) -> None:
    card = (10, 10)
    price = prices(demand, card)
    table = filling(price, card)
    assert table[card] <= 1 + 1e-6
    for size, cost in price.items():
        assert 0 <= cost <= table[size] + 1e-9
    assert sum(price[size] * times for size, times in demand.items()) <= _first_fit(demand, card) + 1e-6
    assert (np.diff(table, axis=0) >= 0).all()


def _first_fit(demand: dict[Size, int], card: Size) -> int:
    """Return how many cards a simple packing takes."""
    cards: list[Size] = []
    for size in sorted(demand, key=max, reverse=True):
        for _ in range(demand[size]):
            room = next(
                (i for i, free in enumerate(cards) if size[0] <= free[0] and size[1] <= free[1]), None
            )
            if room is None:
                cards.append(card)
                room = len(cards) - 1
            cards[room] = (cards[room][0] - size[0], cards[room][1] - size[1])
    return len(cards)
