"""What counts on the cards of a node, event by event."""

from __future__ import annotations

from gaia_plugin.extender.node import Node
from gaia_plugin.gpu.topology import Level
from gaia_plugin.kube.gpunode import Link
from gaia_plugin.kube.placement import Placement, placement_key, render
from gaia_plugin.kube.pods import Pod
from gaia_plugin.kube.replica import Change
from gaia_plugin.placement import Slice
from gaia_plugin.shares import Share
from tests.unit.extender.worlds import (
    ENDED,
    RUNNING,
    World,
    card,
    gpunode,
    pod,
    reservation,
    slot,
)


def free(world: World, node: str = "n1") -> dict[str, tuple[int, int]]:
    return {one.uuid: (one.free.units, one.free.cores) for one in world.snapshot.nodes[node].cards}


def annotated(uid: str, card: str, units: int, cores: int, node: str = "n1") -> dict[str, str]:
    where = {"main": (Slice(card, Share(units, cores)),)}
    return {placement_key(): render(Placement(uid, node, where))}


def test_a_slot_counts_what_it_holds_and_its_reservation_does_not_count_beside_it() -> None:
    world = World()
    world.node(
        "n1",
        [card("a"), card("b")],
        slots=[slot("p1", "a", 10, 20)],
        reservations=[reservation("p1", "a", 30, 40), reservation("p2", "b", 5, 6)],
    )
    assert free(world) == {"a": (54, 80), "b": (59, 94)}


def test_a_bound_pod_that_has_neither_counts_by_its_annotation() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")])
    world.pod(pod("p1", 16, 25, node="n1", annotations=annotated("p1", "b", 16, 25)))
    assert free(world) == {"a": (64, 100), "b": (48, 75)}


def test_a_bound_pod_without_an_annotation_counts_where_the_node_would_put_it() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")], reservations=[reservation("p0", "b", 8, 10)])
    world.pod(pod("p1", 16, 25, node="n1"))
    assert free(world) == {"a": (64, 100), "b": (40, 65)}


def test_an_annotation_of_another_pod_is_not_believed() -> None:
    world = World()
    world.node("n1", [card("a"), card("b")], reservations=[reservation("p0", "a", 8, 10)])
    world.pod(pod("p1", 16, 25, node="n1", annotations=annotated("other", "b", 16, 25)))
    assert free(world)["a"] == (40, 65)


def test_a_terminating_pod_holds_its_card_until_its_container_has_ended() -> None:
    world = World()
    world.node("n1", [card("a")])
    world.pod(pod("p1", 16, 25, node="n1", state=RUNNING))
    assert free(world) == {"a": (48, 75)}
    world.pod(pod("p1", 16, 25, node="n1", state=RUNNING, deleted=True))
    assert free(world) == {"a": (48, 75)}
    world.pod(pod("p1", 16, 25, node="n1", state=ENDED, deleted=True))
    assert free(world) == {"a": (64, 100)}


def test_a_pod_that_failed_before_it_ran_holds_nothing() -> None:
    world = World()
    world.node("n1", [card("a")])
    item = world.pod(pod("p1", 16, 25, node="n1"))
    world.pod(pod("p1", 16, 25, node="n1", phase="Failed"))
    assert free(world) == {"a": (64, 100)}
    world.gone(item)
    assert free(world) == {"a": (64, 100)}


def test_a_pod_that_goes_takes_what_only_it_has_told_with_it() -> None:
    world = World()
    world.node("n1", [card("a")])
    item = world.pod(pod("p1", 16, 25, node="n1"))
    world.gone(item)
    assert free(world) == {"a": (64, 100)}


def test_pods_that_are_seen_before_their_node_count_when_it_comes() -> None:
    world = World()
    world.pod(pod("p1", 16, 25, node="n1"))
    world.node("n1", [card("a")])
    assert free(world) == {"a": (48, 75)}


def test_two_containers_count_one_by_one() -> None:
    world = World()
    world.node("n1", [card("a")], slots=[slot("p1", "a", 4, 10, "one")])
    world.pod(pod("p1", node="n1", containers={"one": (8, 20), "two": (8, 20)}))
    assert free(world) == {"a": (52, 70)}


def test_a_bind_under_way_counts_until_it_is_forgotten_and_only_once() -> None:
    world = World()
    world.node("n1", [card("a")])
    where = {"main": (Slice("a", Share(16, 25)),)}
    world.snapshot.assume("n1", "p1", where)
    assert free(world) == {"a": (48, 75)}
    world.node("n1", [card("a")], reservations=[reservation("p1", "a", 16, 25)], version=2)
    assert free(world) == {"a": (48, 75)}
    world.snapshot.forget("n1", "p1")
    assert free(world) == {"a": (48, 75)}


def test_what_a_pod_has_reserved_is_free_to_itself_alone() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("p1", "a", 64, 100)])
    node = world.snapshot.nodes["n1"]
    assert world.snapshot.cards_for(node, "p1")[0].idle
    assert not world.snapshot.cards_for(node, "p2")[0].idle


def test_a_slot_of_its_own_is_not_free_to_a_pod() -> None:
    world = World()
    world.node("n1", [card("a")], slots=[slot("p1", "a", 8, 8)], reservations=[reservation("p1", "a", 8, 8)])
    assert world.snapshot.cards_for(world.snapshot.nodes["n1"], "p1")[0].free == Share(56, 92)


def test_heartbeats_alone_tell_nobody_of_a_change() -> None:
    world, told = World(), []
    world.node("n1", [card("a")])
    world.snapshot.listen(lambda node, roomier: told.append((node.name, roomier)))
    for second in range(3):
        world.node("n1", [card("a")], heartbeat=f"2026-11-29T12:00:0{second}Z", version=second + 2)
    assert told == []


def test_who_listens_is_told_when_there_is_more_room() -> None:
    world, told = World(), []
    item = world.pod(pod("p1", 16, 25, node="n1"))
    world.node("n1", [card("a"), card("b", healthy=False)])
    world.snapshot.listen(lambda node, roomier: told.append(roomier))
    world.pod(pod("p2", 16, 25, node="n1"))
    assert told == [False]
    world.gone(item)
    assert told == [False, True]
    world.pod(pod("p2", 16, 25, node="n1", phase="Failed"))
    world.node("n1", [card("a"), card("b")], version=3)
    assert told[-1] is True


def test_a_node_that_wakes_up_is_room() -> None:
    world, told = World(), []
    world.node("n1", [card("a")])
    world.snapshot.listen(lambda node, roomier: told.append(roomier))
    world.now += 500
    assert not world.snapshot.usable(world.snapshot.nodes["n1"])
    world.node("n1", [card("a")], heartbeat="2026-11-29T12:08:20Z", version=2)
    assert world.snapshot.usable(world.snapshot.nodes["n1"])
    assert told == [True]


def test_reservations_are_known_by_pod() -> None:
    world = World()
    world.node("n1", [card("a")], reservations=[reservation("p1", "a", 1, 1)])
    world.node("n2", [card("b")], reservations=[reservation("p1", "b", 1, 1)])
    assert world.snapshot.reserved_on["p1"] == {"n1", "n2"}
    world.node("n1", [card("a")], version=2)
    assert world.snapshot.reserved_on["p1"] == {"n2"}
    world.node("n2", [card("b")], version=2)
    assert world.snapshot.reserved_on == {}


def test_nothing_is_left_of_a_node_that_is_gone() -> None:
    world = World()
    made = world.node("n1", [card("a")], reservations=[reservation("p1", "a", 1, 1)])
    item = world.pod(pod("p1", 1, 1, node="n1"))
    world.snapshot.gpunode_changed(Change("gone", made, made))
    world.machine("n1", there=False)
    world.gone(item)
    assert world.snapshot.nodes == {}
    assert world.snapshot.reserved_on == {}


def test_the_late_end_of_an_old_object_does_not_touch_the_new_one() -> None:
    world = World()
    old = world.node("n1", [card("a")], uid="old")
    world.node("n1", [card("a")], uid="new")
    world.snapshot.gpunode_changed(Change("gone", old, old))
    node: Node = world.snapshot.nodes["n1"]
    assert node.gpunode is not None
    assert node.gpunode.metadata.uid == "new"


def test_pods_wait_until_they_are_bound_or_given_up() -> None:
    world = World()
    items: list[Pod] = [world.pod(pod(f"p{index}", 1, 1)) for index in range(4)]
    assert list(world.snapshot.waiting) == ["p0", "p1", "p2", "p3"]
    world.pod(pod("p0", 1, 1, node="n1"))
    world.pod(pod("p1", 1, 1, deleted=True))
    world.pod(pod("p2", 1, 1, phase="Failed"))
    world.gone(items[3])
    assert world.snapshot.waiting == {}


def test_links_make_groups() -> None:
    world = World()
    cards = [card("a", links=[Link("b", "NVLink", 4)]), card("b", links=[Link("a", "NVLink", 4)]), card("c")]
    world.node("n1", cards)
    groups = world.snapshot.nodes["n1"].topology.groups(Level.NVLINK, ["a", "b", "c"])
    assert groups == (("a", "b"), ("c",))
    assert gpunode("n1", cards).status.cards[0].links[0].card == "b"
