"""How far a pod's owner may grow a slot: what the pod says, and otherwise what it asks for."""

from __future__ import annotations

import pytest

from gaia_plugin.agent.pods.placed import maximum
from gaia_plugin.kube.wishes import Wish
from gaia_plugin.ledger import CardCapacity
from gaia_plugin.placement import Request
from gaia_plugin.shares import Share

CARDS = (CardCapacity("GPU-a", 0, "A100", 160), CardCapacity("GPU-b", 1, "L4", 80))

ROWS = [
    ("nothing said: no further than asked", Wish(Request(16, 25)), Share(16, 25)),
    ("memory said", Wish(Request(16, 25), 64), Share(64, 25)),
    ("compute said", Wish(Request(16, 25), None, 75), Share(16, 75)),
    ("both said", Wish(Request(16, 25), 64, 75), Share(64, 75)),
    ("more than a card", Wish(Request(16, 25), 4096, 100), Share(160, 100)),
    ("compute that came with the memory", Wish(Request(16)), Share(16, 20)),
    ("compute that comes with the most memory", Wish(Request(16), 40), Share(40, 50)),
    ("of the model asked for", Wish(Request(16, models=frozenset({"a100"})), 40), Share(40, 25)),
    ("whole cards", Wish(Request(None, 200)), Share(320, 200)),
    ("over two cards", Wish(Request(32, 50, 2), 64), Share(64, 50)),
]


@pytest.mark.parametrize(("wish", "right"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_maximum(wish: Wish, right: Share) -> None:
    assert maximum(wish, CARDS) == right
