"""Which card is chosen, mode by mode."""

from __future__ import annotations

import pytest

from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import CardState, Request, Slice, place
from gaia_plugin.shares import Share
from tests.unit.placement.cards import T4, card, chosen, pcie, quads


def test_a_slice_is_what_was_asked_for() -> None:
    assert place(Request(16, 25), [card("a")]) == (Slice("a", Share(16, 25)),)


@pytest.mark.parametrize(
    ("request_", "cards", "uuid"),
    [
        pytest.param(Request(16, 25), [card("b"), card("a")], "a", id="equals: the first UUID"),
        pytest.param(
            Request(16, 25), [card("a"), card("b", (60, 60))], "b", id="a card in use, not an idle one"
        ),
        pytest.param(
            Request(16, 25),
            [card("a"), card("b", (94, 99))],
            "b",
            id="in use for memory or compute is in use",
        ),
        pytest.param(
            Request(16, 25), [card("a", (60, 60)), card("b", (18, 27))], "b", id="the tightest that fits"
        ),
        pytest.param(
            Request(16, 25), [card("a", (15, 90)), card("b", (90, 24)), card("c")], "c", id="both must fit"
        ),
        pytest.param(
            Request(47, 10),
            [card("a", (60, 60)), card("b", (60, 12))],
            "b",
            id="memory that compute has left stranded goes first",
        ),
        pytest.param(
            Request(94), [card("a", (94, 99)), card("b", (93, 100)), card("c")], "c", id="a card's all"
        ),
        pytest.param(
            Request(16, 25), [card("a", healthy=False), card("b")], "b", id="a sick card gets nothing"
        ),
        pytest.param(
            Request(16, 25, models=frozenset({"T4"})),
            [card("a"), card("b", model=T4)],
            "b",
            id="only a model asked for",
        ),
        pytest.param(
            Request(16, 25),
            [card("a", (-3, 90)), card("b")],
            "b",
            id="a card booked over its size gets nothing",
        ),
    ],
)
def test_a_part_of_a_card_goes_where_it_costs_least(
    request_: Request, cards: list[CardState], uuid: str
) -> None:
    assert chosen(request_, cards) == uuid
    assert chosen(request_, cards[::-1]) == uuid


@pytest.mark.parametrize(
    ("used", "uuid"),
    [
        pytest.param("", "a", id="nothing used: the first"),
        pytest.param("f", "e", id="the one whose neighbour is in use already"),
        pytest.param("abc", "d", id="the last of a node before a fresh pair"),
        pytest.param("cd", "a", id="the pair that is left of a node before a node"),
    ],
)
def test_one_whole_card_breaks_up_the_least(used: str, uuid: str) -> None:
    cards = [card(name, (50, 50) if name in used else None) for name in "abcdefgh"]
    assert chosen(Request(None, 100), cards, pcie()) == uuid
    assert chosen(Request(94, 100), cards[::-1], pcie()) == uuid


def test_a_whole_card_with_little_memory_takes_the_smaller_card() -> None:
    cards = [card("a", capacity=(160, 100)), card("b", capacity=(64, 100))]
    assert chosen(Request(40, 100), cards) == "b"
    assert chosen(Request(None, 100), cards) == "b"


@pytest.mark.parametrize(
    ("cores", "used", "topology", "uuids"),
    [
        pytest.param(200, "", pcie(), "ab", id="two under one switch"),
        pytest.param(200, "a", pcie(), "cd", id="two under one switch, in the node that is broken already"),
        pytest.param(200, "ac", pcie(), "ef", id="under one switch before under one node"),
        pytest.param(200, "acfh", pcie(), "bd", id="under one node before across"),
        pytest.param(300, "", pcie(), "abc", id="three within one node"),
        pytest.param(400, "a", pcie(), "efgh", id="a whole node before across"),
        pytest.param(500, "", pcie(), "abcde", id="across if nothing else will do"),
        pytest.param(800, "", pcie(), "abcdefgh", id="all"),
        pytest.param(200, "", quads(), "ab", id="two of a quad"),
        pytest.param(200, "b", quads(), "ac", id="two of the broken quad"),
        pytest.param(400, "b", quads(), "efgh", id="the quad that is left"),
        pytest.param(200, "acf", quads(), "bd", id="a pair on its own before two of three"),
        pytest.param(200, "", Topology(), "ab", id="nothing known: the first UUIDs"),
    ],
)
def test_several_cards_are_the_best_linked_ones(
    cores: int, used: str, topology: Topology, uuids: str
) -> None:
    cards = [card(name, (50, 50) if name in used else None) for name in "abcdefgh"]
    assert chosen(Request(None, cores), cards, topology) == uuids
    assert chosen(Request(None, cores), cards[::-1], topology) == uuids


def test_more_nvlinks_between_two_cards_count_more() -> None:
    topology = Topology.of(
        [("a", "b", Tie(Level.NVLINK, 1)), ("a", "c", Tie(Level.NVLINK, 2)), ("b", "c", Tie(Level.SWITCH))]
    )
    assert chosen(Request(None, 200), [card(name) for name in "abc"], topology) == "ac"


def test_the_weakest_tie_of_a_set_decides_before_the_sum() -> None:
    # abc: two triple links and nothing between the ends; def: single links all around.
    triple, single = Tie(Level.NVLINK, 3), Tie(Level.NVLINK, 1)
    topology = Topology.of(
        [("a", "b", triple), ("b", "c", triple), ("d", "e", single), ("e", "f", single), ("d", "f", single)]
    )
    assert chosen(Request(None, 300), [card(name) for name in "abcdef"], topology) == "def"


def test_on_a_mesh_the_cards_that_are_left_are_tied_well_too() -> None:
    # Pairs with two links: ab, ac and bd. Taking ab would leave c and d with one between them.
    links = {"ab": 2, "ac": 2, "ad": 1, "bc": 1, "bd": 2, "cd": 1}
    mesh = Topology.of((a, b, Tie(Level.NVLINK, number)) for (a, b), number in links.items())
    assert chosen(Request(None, 200), [card(name) for name in "abcd"], mesh) == "ac"


def test_parts_of_several_cards_are_split_evenly_over_distinct_ones() -> None:
    cards = [card("a", (60, 60)), card("b"), card("c", (60, 60))]
    slices = place(Request(40, 50, 2), cards)
    assert slices == (Slice("a", Share(20, 25)), Slice("c", Share(20, 25)))


def test_models_are_not_mixed_if_that_can_be_avoided() -> None:
    cards = [card("a"), card("b", model=T4), card("c", model=T4), card("d", (94, 99))]
    best = Topology.of([("a", "b", Tie(Level.NVLINK, 4))])
    assert chosen(Request(None, 200), cards, best) == "bc"


def test_whole_cards_of_different_sizes_are_each_given_whole() -> None:
    cards = [card("a", capacity=(160, 100)), card("b", capacity=(64, 100))]
    assert place(Request(None, 200), cards) == (Slice("a", Share(160, 100)), Slice("b", Share(64, 100)))


def test_many_cards_are_grown_into_a_set_in_reasonable_time() -> None:
    names = [f"{number:02}" for number in range(24)]
    ties = [(x, y, Tie(Level.NVLINK)) for x in names for y in names if x < y and int(x) // 12 == int(y) // 12]
    cards = [card(name, (50, 50) if name == "00" else None) for name in names]
    assert chosen(Request(None, 1200), cards, Topology.of(ties)) == "".join(names[12:])
