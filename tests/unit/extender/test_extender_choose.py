"""Which node takes a pod, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from gaia_plugin.extender.choose import Choice, scores
from gaia_plugin.extender.demand import demand_of
from gaia_plugin.kube.gpunode import Link
from gaia_plugin.kube.pods import Pod
from tests.unit.extender.worlds import ENDED, RUNNING, World, card, pod, reservation, slot


def choose(world: World, item: Pod, *offered: str) -> Choice:
    return world.chooser.choose(demand_of(item), list(offered) or sorted(world.snapshot.nodes))


def cards_of(choice: Choice) -> dict[str, list[str]]:
    return {name: [part.card for part in slices] for name, slices in choice.where.items()}


def test_a_part_of_a_card_goes_to_a_card_that_is_in_use() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")])
    world.node("n2", [card("c"), card("d")], reservations=[reservation("p0", "d", 16, 25)])
    choice = choose(world, pod("p1", 16, 25))
    assert (choice.node, cards_of(choice)) == ("n2", {"main": ["d"]})


def test_the_tightest_fit_wins_and_equals_go_by_name() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("x", "a", 16, 25)])
    world.node("n2", [card("b")], reservations=[reservation("y", "b", 40, 60)])
    assert choose(world, pod("p1", 16, 25)).node == "n2"
    assert choose(world, pod("p1", 32, 50)).node == "n1"
    world.node("n0", [card("c")], reservations=[reservation("z", "c", 40, 60)])
    assert choose(world, pod("p1", 16, 25)).node == "n0"


def test_whole_cards_use_up_the_node_with_the_fewest_idle_ones() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")])
    world.node("n2", [card("c"), card("d")], reservations=[reservation("p0", "d", 16, 25)])
    assert choose(world, pod("p1", None, 100)).node == "n2"


def test_several_cards_go_where_they_are_linked() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")])
    links = {"c": "d", "d": "c"}
    world.node("n2", [card(one, links=[Link(two, "NVLink", 4)]) for one, two in links.items()])
    choice = choose(world, pod("p1", None, 200))
    assert (choice.node, cards_of(choice)) == ("n2", {"main": ["c", "d"]})


def test_only_nodes_that_are_offered_are_chosen() -> None:
    world = World()
    for name in ("n1", "n2", "n3"):
        world.node(name, [card(f"{name}-a")])
    assert choose(world, pod("p1", 8, 10), "n3", "n2").node == "n2"
    assert choose(world, pod("p1", 8, 10), "n9").hopeless.keys() == {"n9"}


def test_the_containers_of_a_pod_fit_beside_each_other() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")], reservations=[reservation("p0", "b", 32, 50)])
    item = pod("p1", containers={"small": (20, 20), "large": (60, 90)})
    assert cards_of(choose(world, item)) == {"small": ["b"], "large": ["a"]}
    assert choose(world, pod("p2", containers={"one": (40, 60), "two": (40, 60)})).node is None


def test_room_for_each_container_alone_is_not_room_for_the_pod() -> None:
    world = World()
    world.node("n1", [card("a")])
    world.node("n2", [card("b"), card("c")])
    item = pod("p1", containers={"one": (40, 60), "two": (40, 60)})
    assert choose(world, item).node == "n2"
    assert choose(world, item, "n1").failed.keys() == {"n1"}
    world.node("n1", [card("a"), card("d")], version=2)
    assert choose(world, item, "n1").node == "n1"


def test_a_model_that_is_asked_for_is_found() -> None:
    world = World()
    world.node("n1", [card("a")])
    world.node("n2", [card("b", model="NVIDIA L40S", units=180)])
    item = pod("p1", 8, 10, annotations={"gaia.io/gpu-model": "L40S"})
    assert choose(world, item).node == "n2"
    refused = choose(world, item, "n1")
    assert refused.hopeless == {
        "n1": "node(s) without the GPU model asked for: 2 GiB and 10 % compute of one card (L40S); there is "
        "NVIDIA A100-SXM4-80GB."
    }


@pytest.mark.parametrize(
    ("case", "sentence", "hopeless"),
    [
        (
            "full",
            "node(s) with GPUs too full now: 16 GiB and 50 % compute of one card asked for, the largest free "
            "slice is 4 GiB and 75 % compute.",
            False,
        ),
        ("small", "node(s) with GPUs too small: 40 GiB and 50 % compute of one card asked for, the largest "
         "has 16 GiB.", True),
        ("few", "node(s) with too few GPUs: 3 whole cards asked for, at most 1 there.", True),
        ("whole", "node(s) with GPUs too full now: 1 whole card asked for, the largest free slice is 4 GiB "
         "and 75 % compute.", False),
        ("sick", "node(s) without a healthy GPU.", False),
        ("silent", "node(s) whose Gaia agent has stopped reporting; running work goes on, nothing new is "
         "placed.", True),
        ("stopped", "node(s) whose Gaia agent does not take pods at the moment.", True),
        ("none", "node(s) without Gaia: no agent has reported a GPU there.", True),
    ],
)  # fmt: skip
def test_a_refused_node_is_told_why(case: str, sentence: str, hopeless: bool) -> None:
    world = World()
    taken = [reservation("p0", "a", 48, 25)]
    item = pod("p1", 64, 50)
    more: dict[str, Any] = {"reservations": taken}
    match case:
        case "small":
            item = pod("p1", 160, 50)
        case "few":
            item = pod("p1", None, 300)
        case "whole":
            item = pod("p1", None, 100)
        case "silent":
            more = {"heartbeat": "2026-11-29T11:00:00Z"}
        case "stopped":
            more = {"ready": False}
    if case == "none":
        world.machine("n1")
    else:
        world.node("n1", [card("a", healthy=case != "sick")], **more)
    choice = choose(world, item)
    assert choice.node is None
    assert (choice.hopeless if hopeless else choice.failed) == {"n1": sentence}


def test_nodes_of_a_group_are_told_the_same() -> None:
    world = World()
    for index in range(3):
        taken = [reservation("p0", f"c{index}", 40 + index, 25)]
        world.node(f"n{index}", [card(f"c{index}")], reservations=taken)
    failed = choose(world, pod("p1", 64, 50)).failed
    assert len(failed) == 3
    assert len(set(failed.values())) == 1
    assert "the largest free slice is 6 GiB and 75 % compute" in failed["n0"]


def test_a_node_that_was_not_seen_of_late_is_not_chosen_although_it_fits_best() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("p0", "a", 16, 25)])
    world.node("n2", [card("b")])
    assert choose(world, pod("p1", 16, 25)).node == "n1"
    world.now += 90
    world.node("n2", [card("b")], heartbeat="2026-11-29T12:01:30Z", version=2)
    world.now += 20
    assert choose(world, pod("p1", 16, 25)).node == "n2"


def test_c02_a_terminating_pod_counts_until_its_containers_have_ended() -> None:
    world = World()
    cards = [card(f"card{index}") for index in range(4)]
    promised = [
        reservation("p1", "card0", 8, 60),
        reservation("p2", "card1", 8, 60),
        reservation("p3", "card0", 8, 30),
    ]
    world.node("n1", cards, reservations=promised)
    world.pod(pod("p1", 8, 60, node="n1", deleted=True, state=RUNNING))
    assert {one.uuid: one.free.cores for one in world.snapshot.nodes["n1"].cards}["card0"] == 10
    assert cards_of(choose(world, pod("p4", 8, 60))) == {"main": ["card2"]}
    # the agent has its slot now, and the containers have ended: the slot counts until the agent drops it
    world.node("n1", cards, slots=[slot("p1", "card0", 8, 60)], reservations=promised, version=2)
    world.pod(pod("p1", 8, 60, node="n1", deleted=True, state=ENDED, version=2))
    assert {one.uuid: one.free.cores for one in world.snapshot.nodes["n1"].cards}["card0"] == 10
    world.node("n1", cards, reservations=promised[1:], version=3)
    assert {one.uuid: one.free.cores for one in world.snapshot.nodes["n1"].cards}["card0"] == 70


def test_c03_the_same_pod_filtered_again_gets_the_same_answer() -> None:
    world = World()
    for name in ("n1", "n2", "n3"):
        world.node(name, [card(f"{name}-a"), card(f"{name}-b")])
    item = world.pod(pod("p1", 16, 25))
    answers = [choose(world, item) for _ in range(5)]
    assert all(answer == answers[0] for answer in answers)
    # a failed bind has left a reservation on another node: that promise is taken up
    world.node(
        "n3", [card("n3-a"), card("n3-b")], reservations=[reservation("p1", "n3-b", 16, 25)], version=2
    )
    assert {choose(world, item).node for _ in range(5)} == {"n3"}
    world.gone(item)
    assert choose(world, item).node == "n3"


def test_a_pod_fits_where_only_its_own_reservation_is_in_the_way() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("p1", "a", 64, 100)])
    assert choose(world, pod("p1", None, 100)).node == "n1"
    assert choose(world, pod("p2", None, 100)).node is None


def test_prioritize_agrees_with_filter() -> None:
    world = World()
    for index in range(12):
        world.node(
            f"n{index:02}", [card(f"c{index}")], reservations=[reservation("x", f"c{index}", index, index)]
        )
    world.node("n99", [card("full")], reservations=[reservation("y", "full", 64, 100)])
    names = sorted(world.snapshot.nodes)
    found = scores(world.chooser, demand_of(pod("p1", 4, 4)), names)
    assert found.keys() == set(names)
    best = choose(world, pod("p1", 4, 4)).node
    assert best is not None
    assert found[best] == 10
    assert found["n99"] == 0
    assert all(0 <= score <= 10 for score in found.values())
