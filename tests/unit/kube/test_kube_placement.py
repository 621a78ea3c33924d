from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaia_plugin.kube.placement import Ignored, Placement, parse, placed, placement_key, render
from gaia_plugin.kube.pods import Pod
from gaia_plugin.placement import CardState, Request, Slice
from gaia_plugin.shares import Share
from tests.support.kubeapi import pod_manifest

CARDS = [
    CardState("GPU-a", "NVIDIA A100-SXM4-40GB", Share(160, 100), Share(160, 100)),
    CardState("GPU-b", "NVIDIA A100-SXM4-40GB", Share(160, 100), Share(0, 0), healthy=False),
    CardState("GPU-c", "Tesla T4", Share(60, 100), Share(60, 100)),
]
GOOD = '{"uid":"u","node":"node1","containers":{"main":{"GPU-a":[16,25]}}}'


def pod_with(text: str | None, uid: str = "u") -> Pod:
    annotations = {} if text is None else {"gaia.io/placement": text}
    manifest = pod_manifest("a", uid=uid, annotations=annotations)
    return msgspec.json.decode(json.dumps(manifest).encode(), type=Pod)


def test_a_placement_as_it_is_written() -> None:
    placement = Placement("u", "node1", {"main": (Slice("GPU-a", Share(16, 25)),)})
    assert render(placement) == '{"containers":{"main":{"GPU-a":[16,25]}},"node":"node1","uid":"u"}'
    assert parse(render(placement)) == placement
    assert parse(GOOD) == placement
    assert placement_key("x.org") == "x.org/placement"


names = st.text("abcGPU-012. ", min_size=1, max_size=20)
slices = st.dictionaries(
    names, st.builds(Share, st.integers(1, 64 * 4096), st.integers(1, 100)), min_size=1, max_size=4
).map(lambda cards: tuple(Slice(card, cards[card]) for card in sorted(cards)))
placements = st.builds(
    Placement, uid=names, node=names, containers=st.dictionaries(names, slices, min_size=1, max_size=5)
)


@settings(deadline=None)
@given(placements)
def test_what_is_written_is_read_as_it_was(placement: Placement) -> None:
    assert parse(render(placement)) == placement


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.text(max_size=200) | json_values.map(json.dumps))
def test_no_text_crashes_it(text: str) -> None:
    result = parse(text)
    assert isinstance(result, Ignored)
    assert result.reason
    assert isinstance(placed(pod_with(text), "main", Request(16, 25), CARDS, node="node1"), Ignored)


def spoilt(**changes: object) -> str:
    return json.dumps({**json.loads(GOOD), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "1", GOOD[:-1], GOOD + "x",
        "[" * 60_000, '{"a":' * 10_000, "\ud800", "x" * 70_000,
        spoilt(uid=5), spoilt(uid=""), spoilt(uid=None), spoilt(node=""), spoilt(extra=1),
        spoilt(containers={}),
        spoilt(containers={"main": {}}), spoilt(containers={"": {"GPU-a": [1, 1]}}),
        spoilt(containers={"main": {"GPU-a": [16]}}), spoilt(containers={"main": {"GPU-a": [16, 25, 1]}}),
        spoilt(containers={"main": {"GPU-a": [0, 25]}}), spoilt(containers={"main": {"GPU-a": [16, 0]}}),
        spoilt(containers={"main": {"GPU-a": [-1, 25]}}), spoilt(containers={"main": {"GPU-a": [16, 101]}}),
        spoilt(containers={"main": {"GPU-a": [1 << 63, 25]}}),
        spoilt(containers={"main": {"GPU-a": [1.5, 25]}}),
        spoilt(containers={"main": {"GPU-a": [True, 25]}}),
        spoilt(containers={"main": {"GPU-a": ["16", "25"]}}),
        spoilt(containers={"main": {f"GPU-{n}": [1, 1] for n in range(17)}}),
        spoilt(containers={f"c{n}": {"GPU-a": [1, 1]} for n in range(65)}),
        spoilt(containers={"main": {"G" * 300: [16, 25]}}),
    ],
)  # fmt: skip
def test_what_gaia_did_not_write_is_ignored(text: str) -> None:
    result = parse(text)
    assert isinstance(result, Ignored)
    assert result.reason


def test_a_placement_for_this_pod_is_taken() -> None:
    found = placed(pod_with(GOOD), "main", Request(16, 25), CARDS, node="node1")
    assert found == (Slice("GPU-a", Share(16, 25)),)


def test_memory_alone_and_whole_cards_are_what_they_come_to_on_the_card() -> None:
    alone = spoilt(containers={"main": {"GPU-a": [16, 10]}})
    assert placed(pod_with(alone), "main", Request(16), CARDS, node="node1") == (
        Slice("GPU-a", Share(16, 10)),
    )
    whole = spoilt(containers={"main": {"GPU-a": [160, 100], "GPU-c": [60, 100]}})
    assert placed(pod_with(whole), "main", Request(None, 200), CARDS, node="node1") == (
        Slice("GPU-a", Share(160, 100)),
        Slice("GPU-c", Share(60, 100)),
    )


def main_on(cards: object) -> Pod:
    return pod_with(spoilt(containers={"main": cards}))


IGNORED = [
    ("none there", pod_with(None), Request(16, 25), None),
    ("of a pod of the same name before", pod_with(GOOD, uid="v"), Request(16, 25), "another pod"),
    ("of another node", pod_with(spoilt(node="node2")), Request(16, 25), "node2, and this is node1"),
    ("of another container", pod_with(spoilt(containers={"b": {"GPU-a": [16, 25]}})), Request(16, 25),
     "this container"),
    ("an unknown card", main_on({"GPU-x": [16, 25]}), Request(16, 25), "no card GPU-x"),
    ("more memory than asked", main_on({"GPU-a": [17, 25]}), Request(16, 25), "17 units"),
    ("more cores than asked", main_on({"GPU-a": [16, 100]}), Request(16, 25), "100 cores"),
    ("less than asked", main_on({"GPU-a": [1, 1]}), Request(16, 25), "asks for 16 and 25"),
    ("too few cards", main_on({"GPU-a": [8, 25]}), Request(16, 50, 2), "names 1 cards"),
    ("too many cards", main_on({"GPU-a": [16, 25], "GPU-b": [16, 25]}), Request(16, 25),
     "names 2 cards"),
    ("another model", pod_with(GOOD), Request(16, 25, 1, frozenset({"T4"})), "model"),
    ("a request that means nothing", pod_with(GOOD), Request(None, 25), "without memory"),
    ("garbage", pod_with("garbage"), Request(16, 25), "not what Gaia writes"),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "request_", "part"), [r[1:] for r in IGNORED], ids=[r[0] for r in IGNORED])
def test_a_placement_that_is_not_believed(pod: Pod, request_: Request, part: str | None) -> None:
    found = placed(pod, "main", request_, CARDS, node="node1")
    assert isinstance(found, Ignored)
    if part is None:
        assert found.reason is None
    else:
        assert part in (found.reason or "")
