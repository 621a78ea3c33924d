"""The annotation that a pod should have: the ledger's word, and the extender's for what is to come."""

from __future__ import annotations

import json

import pytest

from gaia_plugin.agent.pods.publish import wanted
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.kube.pods import Pod
from gaia_plugin.shares import Share

CARD, OTHER = "GPU-0", "GPU-1"
GIVEN = {"main": {CARD: Share(16, 25)}}


def pod(text: str | None = None) -> Pod:
    return Pod(Metadata("p", "uid", annotations=None if text is None else {"gaia.io/placement": text}))


def told(uid: str = "uid", node: str = "node1", **containers: dict[str, list[int]]) -> str:
    return json.dumps({"uid": uid, "node": node, "containers": containers})


def write(text: str | None) -> object:
    new = wanted(pod(text), GIVEN, node="node1", domain="gaia.io")
    return new and json.loads(new)


def test_what_is_right_is_left() -> None:
    assert write(told(main={CARD: [16, 25]})) is None
    assert write(told(main={CARD: [16, 25]}).replace(" ", "")) is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        told(main={OTHER: [16, 25]}),
        told(main={CARD: [1, 1]}),
        told("else", main={CARD: [16, 25]}, side={OTHER: [1, 1]}),
        told("uid", "node2", main={CARD: [16, 25]}, side={OTHER: [1, 1]}),
    ],
)
def test_what_is_wrong_is_put_right(text: str | None) -> None:
    assert write(text) == {"uid": "uid", "node": "node1", "containers": {"main": {CARD: [16, 25]}}}


def test_what_is_said_of_containers_to_come_is_kept() -> None:
    new = write(told(main={OTHER: [16, 25]}, side={OTHER: [1, 1]}))
    assert new == json.loads(told(main={CARD: [16, 25]}, side={OTHER: [1, 1]}))
