"""The extender's choice: never over capacity, never a write, and the same answer to the same question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gaia_plugin.counted import counted
from gaia_plugin.errors import Refusal
from gaia_plugin.extender.choose import Choice, Chooser, scores
from gaia_plugin.extender.demand import Demand, demand_of
from gaia_plugin.extender.fit import fit
from gaia_plugin.extender.node import booked_by, count
from gaia_plugin.kube import gpunode as wire
from gaia_plugin.kube.gpunode import Reservation
from gaia_plugin.kube.pods import Pod
from gaia_plugin.placement.cluster import Ask, Options, Rule
from gaia_plugin.shares import NOTHING
from tests.unit.extender.worlds import World, card, pod, reservation, slot

UNITS = 8
NODES = ("n0", "n1", "n2")

shares = st.tuples(st.integers(1, UNITS), st.integers(1, 100))
wholes = st.integers(1, 3).map(lambda cards: (None, 100 * cards))
containers = st.dictionaries(st.sampled_from(["one", "two", "three"]), st.one_of(shares, wholes), min_size=1)
pods = st.lists(containers, min_size=1, max_size=12)
taken = st.lists(st.tuples(st.sampled_from(NODES), st.integers(0, 2), shares), max_size=6)


def world_of(occupied: list[tuple[str, int, tuple[int, int]]]) -> World:
    """Return three nodes of one to three cards, with slots and reservations of others as far as they fit."""
    world = World()
    for at, name in enumerate(NODES):
        left = {f"{name}-{index}": (UNITS, 100) for index in range(at + 1)}
        slots, reservations = [], []
        for number, (node, index, (units, cores)) in enumerate(occupied):
            uuid = f"{name}-{index}"
            if node != name or uuid not in left or units > left[uuid][0] or cores > left[uuid][1]:
                continue
            left[uuid] = (left[uuid][0] - units, left[uuid][1] - cores)
            if number % 2:
                slots.append(slot(f"s{number}", uuid, units, cores))
            else:
                reservations.append(reservation(f"r{number}", uuid, units, cores))
        world.node(name, [card(uuid, units=UNITS) for uuid in left], slots=slots, reservations=reservations)
    return world


def over(world: World) -> list[str]:
    """Return the cards on which more counts than they have."""
    found = []
    for node in world.snapshot.nodes.values():
        assert node.gpunode is not None
        used = counted(wire.held(node.gpunode.status.slots), wire.reserved(node.gpunode.spec.reservations))
        for one in node.gpunode.status.cards:
            if not used.get(one.uuid, NOTHING).fits(one.capacity.share):
                found.append(one.uuid)
    return found


def write(world: World, item: Pod, choice: Choice) -> None:
    """Reserve what was chosen, as a bind would."""
    assert choice.node is not None
    node = world.snapshot.nodes[choice.node].gpunode
    assert node is not None
    mine: list[Reservation] = [
        reservation(item.uid, part.card, part.share.units, part.share.cores, name)
        for name, slices in choice.where.items()
        for part in slices
    ]
    world.node(
        choice.node, node.status.cards, slots=node.status.slots,
        reservations=(*node.spec.reservations, *mine), version=int(node.version) + 1,
    )  # fmt: skip


def standing(world: World) -> dict[str, object]:
    """Return all that counts of a world."""
    nodes = world.snapshot.nodes.items()
    return {name: (node.gpunode, node.cards, dict(node.pending), dict(node.bound)) for name, node in nodes}


def asked(uid: str, wanted: Mapping[str, tuple[int | None, int | None]]) -> tuple[Pod, Demand]:
    item = pod(uid, containers=wanted)
    return item, demand_of(item)


@settings(max_examples=150, deadline=None)
@given(occupied=taken, wishes=pods)
def test_pods_placed_one_after_the_other_never_go_over_a_card(
    occupied: list[tuple[str, int, tuple[int, int]]], wishes: list[dict[str, tuple[int | None, int | None]]]
) -> None:
    world = world_of(occupied)
    assert over(world) == []
    for index, wanted in enumerate(wishes):
        item, demand = asked(f"p{index}", wanted)
        choice = world.chooser.choose(demand, list(NODES))
        if choice.node is None:
            assert choice.failed.keys() | choice.hopeless.keys() == set(NODES)
        else:
            assert set(choice.where) == set(wanted)
            write(world, item, choice)
        assert over(world) == []


@settings(max_examples=150, deadline=None)
@given(occupied=taken, wanted=containers, times=st.integers(1, 3))
def test_filter_changes_nothing_and_equal_questions_get_equal_answers(
    occupied: list[tuple[str, int, tuple[int, int]]],
    wanted: dict[str, tuple[int | None, int | None]],
    times: int,
) -> None:
    world = world_of(occupied)
    _, demand = asked("p", wanted)
    before = {
        name: (node.gpunode, node.cards, dict(node.pending)) for name, node in world.snapshot.nodes.items()
    }
    answers = [world.chooser.choose(demand, list(NODES)) for _ in range(times)]
    assert all(answer == answers[0] for answer in answers)
    after = {
        name: (node.gpunode, node.cards, dict(node.pending)) for name, node in world.snapshot.nodes.items()
    }
    assert before == after
    # what is remembered between questions changes no answer
    assert Chooser(world.snapshot).choose(demand, list(reversed(NODES))) == answers[0]


@settings(max_examples=150, deadline=None)
@given(occupied=taken, wanted=containers)
def test_a_pod_is_refused_only_where_no_node_takes_it(
    occupied: list[tuple[str, int, tuple[int, int]]], wanted: dict[str, tuple[int | None, int | None]]
) -> None:
    world = world_of(occupied)
    _, demand = asked("p", wanted)
    able = set()
    for name, node in world.snapshot.nodes.items():
        try:
            fit(demand, node.cards, node.topology)
        except Refusal:
            continue
        able.add(name)
    choice = world.chooser.choose(demand, list(NODES))
    assert (choice.node in able) if able else (choice.node is None)


@settings(max_examples=150, deadline=None)
@given(occupied=taken, wanted=containers)
def test_a_bind_under_way_counts_as_its_reservation_will_and_forgetting_it_is_identity(
    occupied: list[tuple[str, int, tuple[int, int]]], wanted: dict[str, tuple[int | None, int | None]]
) -> None:
    world = world_of(occupied)
    item, demand = asked("p", wanted)
    choice = world.chooser.choose(demand, list(NODES))
    if choice.node is None:
        return
    node = world.snapshot.nodes[choice.node]
    before = node.cards
    world.snapshot.assume(choice.node, "p", choice.where)
    assumed = node.cards
    assert {holder.uid for parts in node.pending.values() for holder in parts} == {"p"}
    world.snapshot.forget(choice.node, "p")
    assert node.cards == before
    write(world, item, choice)
    assert node.cards == assumed
    assert world.snapshot.cards_for(node, "p") == before
    assert count(node.gpunode, pending={"p": booked_by("p", choice.where)}).cards == assumed  # type: ignore[arg-type]


events = st.lists(
    st.tuples(
        st.sampled_from(["ready", "not ready", "silent", "gone", "take", "learn", "ask"]),
        st.sampled_from(NODES),
        containers,
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(rule=st.sampled_from(list(Rule)), occupied=taken, happened=events, wanted=containers)
def test_a_chooser_that_was_kept_up_answers_as_one_that_sees_the_cluster_for_the_first_time(
    rule: Rule,
    occupied: list[tuple[str, int, tuple[int, int]]],
    happened: list[tuple[str, str, dict[str, tuple[int | None, int | None]]]],
    wanted: dict[str, tuple[int | None, int | None]],
) -> None:
    world = world_of(occupied)
    world.chooser = Chooser(world.snapshot, Options(rule))
    anew = Chooser(world.snapshot, Options(rule))
    for number, (what, name, wish) in enumerate(happened):
        node = world.snapshot.nodes[name].gpunode
        assert node is not None
        item, demand = asked(f"p{number}", wish)
        more: dict[str, Any] = {"slots": node.status.slots, "reservations": node.spec.reservations}
        match what:
            case "ready" | "not ready":
                more |= {"ready": what == "ready", "heartbeat": f"{world.now}"}
                world.node(name, node.status.cards, version=number + 2, **more)
            case "silent":
                world.now += 60
            case "gone":
                world.machine(name, there=False)
            case "learn":
                world.learn(item, times=20)
                for _ in range(20):
                    anew.fleet.mix.see(Ask(demand.kind))
            case "take":
                choice = world.chooser.choose(demand, list(NODES))
                if choice.node is not None:
                    write(world, item, choice)
            case "ask":
                scores(world.chooser, demand, list(NODES))
        assert over(world) == []
    world.chooser.fleet.now().renew()
    anew.fleet.now().renew()
    _, demand = asked("p", wanted)
    answer = world.chooser.choose(demand, list(NODES))
    assert answer == anew.choose(demand, list(reversed(NODES)))
    assert answer.node is None or world.snapshot.usable(world.snapshot.nodes[answer.node])
