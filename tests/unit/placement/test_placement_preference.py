"""What speaks against a card on one node, by the operator's choice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gaia_plugin.placement import Request, place
from gaia_plugin.placement.preference import Cost, binpack, spread
from tests.unit.placement.cards import card, pcie


@pytest.mark.parametrize(("cost", "uuid"), [(binpack, "c"), (spread, "a")])
def test_cards_are_packed_or_spread(cost: Cost, uuid: str) -> None:
    cards = [card("a"), card("b", (60, 60)), card("c", (20, 30))]
    assert place(Request(16, 25), cards, cost=cost)[0].card == uuid
    assert place(Request(16, 25), cards[::-1], cost=cost)[0].card == uuid


def test_ties_decide_before_spreading() -> None:
    cards = [card(name, (60, 60) if name in "cd" else (90, 90)) for name in "abcde"]
    assert [one.card for one in place(Request(16, 20, 2), cards, pcie(), cost=spread)] == ["a", "b"]


def test_a_node_does_not_load_what_only_a_cluster_needs() -> None:
    code = "import sys, gaia_plugin.placement; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
