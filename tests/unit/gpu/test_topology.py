"""The topology tree as a value."""

from __future__ import annotations

import pytest

from gaia_plugin.gpu import Level, Tie, Topology

TREE = Topology.of(
    [
        ("a", "b", Tie(Level.NVLINK, 2)),
        ("a", "c", Tie(Level.NUMA)),
        ("b", "c", Tie(Level.NUMA)),
        ("c", "d", Tie(Level.SWITCH)),
    ]
)


def test_a_tie_is_the_same_from_both_ends() -> None:
    assert TREE.tie("a", "b") == TREE.tie("b", "a") == Tie(Level.NVLINK, 2)


def test_a_pair_nobody_knows_is_tied_by_nothing() -> None:
    assert TREE.level("a", "d") is Level.ANY
    assert TREE.tie("x", "y").weight == 0


def test_closer_ties_weigh_more_and_each_nvlink_adds() -> None:
    ties = [Tie(), Tie(Level.NUMA), Tie(Level.SWITCH), Tie(Level.NVLINK), Tie(Level.NVLINK, 2)]
    weights = [tie.weight for tie in ties]
    assert weights == sorted(weights)
    assert len(set(weights)) == len(weights)


@pytest.mark.parametrize(
    ("level", "groups"),
    [
        (Level.NVLINK, (("a", "b"), ("c",), ("d",), ("e",))),
        (Level.SWITCH, (("a", "b"), ("c", "d"), ("e",))),
        (Level.NUMA, (("a", "b", "c", "d"), ("e",))),
        (Level.ANY, (("a", "b", "c", "d", "e"),)),
    ],
)
def test_the_tree_is_cut_at_a_level(level: Level, groups: tuple[tuple[str, ...], ...]) -> None:
    assert TREE.groups(level, "edcba") == groups


def test_a_tie_of_a_card_with_itself_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="between two cards"):
        Topology.of([("a", "a", Tie())])


def test_a_topology_cannot_be_changed_afterwards() -> None:
    ties = {frozenset("ab"): Tie(Level.SWITCH)}
    topology = Topology(ties)
    ties.clear()
    assert topology.level("a", "b") is Level.SWITCH
