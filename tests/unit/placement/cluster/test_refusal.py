"""What people are told when no node takes their pod."""

from __future__ import annotations

import pytest

from gaia_plugin.errors import Code
from gaia_plugin.placement import Request
from gaia_plugin.placement.cluster import Ask, NodeState
from tests.unit.placement.cards import T4
from tests.unit.placement.nodes import ask, fleet, node


@pytest.mark.parametrize(
    ("nodes", "wanted", "code", "sentence"),
    [
        pytest.param(
            [], ask(16), Code.UNAVAILABLE, "There is no node here that shares its GPUs.", id="no node"
        ),
        pytest.param(
            [node("a", [(8, 8)]), node("b", [(20, 30), (3, 3)])],
            ask(47, 50),
            Code.CARD_FULL,
            "No card has 11.75 GiB and 50 % compute free now: the largest free slice is "
            "5 GiB and 30 % compute, and you can have up to that.",
            id="the node with the largest free slice speaks",
        ),
        pytest.param(
            [node("a", [(94, 100)]), node("b", [(94, 100)] * 3)],
            ask(None, 400),
            Code.INVALID_AMOUNT,
            "4 cards are asked for and there are only 3 here. You can have 3 whole cards (70.5 GiB) now.",
            id="no node has that many",
        ),
        pytest.param(
            [node("a", [(94, 99)] * 4), node("b", [(94, 100)] * 3 + [(1, 1)])],
            ask(None, 400),
            Code.CARD_FULL,
            "Of 4 whole cards only 3 are free now. You can have 3 whole cards (70.5 GiB) now.",
            id="some are in use",
        ),
        pytest.param(
            [node("a"), node("b", model=T4)],
            ask(16, models="H100"),
            Code.NO_SUCH_CARD,
            "There is no card of model H100 here; there is: NVIDIA A100-SXM4-40GB, Tesla T4.",
            id="no such model anywhere",
        ),
        pytest.param(
            [node("a"), node("b", units=64, model=T4)],
            ask(200),
            Code.INVALID_AMOUNT,
            "50 GiB is more than one card holds: ask for at most 23.5 GiB. "
            "You can have up to 23.5 GiB and 100 % compute now.",
            id="more than any card",
        ),
        pytest.param(
            [node("a", cpu=3500, memory=2048), node("b", cpu=1000, memory=1024)],
            ask(16, cpu=4000, memory=2048),
            Code.CARD_FULL,
            "No node has 4 CPU and 2 GiB of memory free beside cards for it now: "
            "the nearest has 3.5 CPU and 2 GiB of memory.",
            id="the host is full",
        ),
        pytest.param(
            [node("a", cpu=10)],
            ask(cpu=20, memory=1),
            Code.CARD_FULL,
            "No node has 0.02 CPU and 1 MiB of memory free now: "
            "the nearest has 0.01 CPU and 976.6 GiB of memory.",
            id="no GPU asked for",
        ),
        pytest.param(
            [node("a", [(40, 40)])],
            Ask((Request(30, 30), Request(30, 30))),
            Code.CARD_FULL,
            "The pod's containers fit one by one, but not all on one node now: "
            "make one of their slices smaller.",
            id="containers do not fit together",
        ),
    ],
)
def test_a_refusal_says_what_is_wanted_and_what_there_is(
    nodes: list[NodeState], wanted: Ask, code: Code, sentence: str
) -> None:
    found = fleet(*nodes)
    assert found.choose(wanted) is None
    refusal = found.why_not(wanted)
    assert (refusal.code, refusal.sentence) == (code, sentence)
    assert fleet(*nodes[::-1]).why_not(wanted).sentence == sentence


def test_only_offered_nodes_are_spoken_of() -> None:
    found = fleet(node("a"), node("b", [(8, 8)]))
    assert "2 GiB" in found.why_not(ask(47, 50), ["b"]).sentence
    assert found.why_not(ask(47, 50), ["nobody"]).code is Code.UNAVAILABLE


def test_a_request_without_meaning_is_told_the_nearest_that_has_one() -> None:
    refusal = fleet(node("a")).why_not(ask(None, 50))
    assert refusal.code is Code.INVALID_AMOUNT
    assert "50 % compute without memory is not a slice" in refusal.sentence
