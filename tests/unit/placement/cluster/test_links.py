"""How closely the free cards of a node are tied."""

from __future__ import annotations

import pytest

from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement.cluster.links import closest, mesh_of
from tests.unit.placement.cards import pcie, quads


@pytest.mark.parametrize(
    ("topology", "free", "count", "level"),
    [
        pytest.param(pcie(), "ab", 2, Level.SWITCH, id="a switch"),
        pytest.param(pcie(), "ac", 2, Level.NUMA, id="a node"),
        pytest.param(pcie(), "ae", 2, Level.ANY, id="across"),
        pytest.param(pcie(), "abcdefgh", 3, Level.NUMA, id="three find no switch"),
        pytest.param(pcie(), "abcdefgh", 5, Level.ANY, id="five find no node"),
        pytest.param(quads(), "bcdfgh", 3, Level.NVLINK, id="three of a quad"),
        pytest.param(quads(), "abcefg", 4, Level.ANY, id="no quad is left"),
        pytest.param(quads(), "ab", 3, Level.ANY, id="not that many"),
        pytest.param(Topology(), "ab", 2, Level.ANY, id="nothing known"),
    ],
)
def test_the_weakest_tie_of_the_best_set_counts(
    topology: Topology, free: str, count: int, level: Level
) -> None:
    mesh = mesh_of(topology, "abcdefgh")
    assert closest(mesh, [ord(name) - ord("a") for name in free], count) is level


def test_nodes_of_more_than_64_cards_are_no_different() -> None:
    names = [f"{number:03}" for number in range(96)]
    topology = Topology.of([("090", "095", Tie(Level.NVLINK))])
    mesh = mesh_of(topology, names)
    assert closest(mesh, range(96), 2) is Level.NVLINK
    assert closest(mesh, range(95), 2) is Level.ANY


def test_machines_built_alike_have_the_same_mesh() -> None:
    one = Topology.of([("a", "b", Tie(Level.SWITCH))])
    other = Topology.of([("x", "y", Tie(Level.SWITCH))])
    assert mesh_of(one, "abc") == mesh_of(other, "xyz") != mesh_of(one, "cab")
