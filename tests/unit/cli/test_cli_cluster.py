"""What the commands print of a node of a cluster, and of the whole cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gaia_plugin.api import models
from gaia_plugin.commands import common, explain, slots
from gaia_plugin.commands.nodes import NodeView, view
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.kube import gpunode
from gaia_plugin.kube.objects import Metadata
from gaia_plugin.units import GIB, MEMORY_UNIT
from tests.support.kubeapi import FakeKubeApi
from tests.unit.cli.test_cli_node import invoke

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def amounts(gib: int, cores: int) -> models.Amounts:
    return models.Amounts(memory=gib * GIB, cores=cores)


def a_slot(name: str = "main", label: str = "ml/train", **more: Any) -> models.Slot:
    card = models.SlotCard(
        uuid="GPU-a", index=3, name="A100", requested=amounts(4, 25), granted=amounts(6, 30),
        held=amounts(8, 40), used=7 * GIB, free_on_card=amounts(1, 5),
    )  # fmt: skip
    return models.Slot(
        slot=f"uid--{name}", owner="uid", name=name, generation=3, state="draining", compute="elastic",
        requested=amounts(4, 25), granted=amounts(6, 30), held=amounts(8, 40), used=7 * GIB,
        maximum=amounts(16, 50), could_reach=amounts(9, 45), cards=(card,), processes=(), message="",
        label=label, **more,
    )  # fmt: skip


class FakeAgent:
    def __init__(self, *told: models.Explained, listed: tuple[models.Slot, ...] = ()) -> None:
        self._told = {each.pod: each for each in told}
        self._listed = listed

    def slots(self) -> tuple[models.Slot, ...]:
        return self._listed

    def explain(self, pod: str) -> models.Explained:
        if pod not in self._told:
            raise Refusal(Code.NO_SUCH_SLOT, f"The agent knows no pod {pod}.")
        return self._told[pod]


def serve(monkeypatch: pytest.MonkeyPatch, *agents: FakeAgent) -> None:
    found = [(Path(f"/state{number}"), agent) for number, agent in enumerate(agents)]
    for module in (common, explain, slots):
        monkeypatch.setattr(module, "agents", lambda _: found)


def test_slots_of_pods_are_shown_by_pod_and_container(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeAgent(listed=(a_slot(), a_slot("side", note="Found again."))))
    said = invoke("slots")
    heads = ("pod", "container", "state", "requested", "granted", "held", "used")
    assert all(head in said for head in heads)
    row = next(line for line in said.splitlines() if " main " in line)
    for cell in (
        "ml/train",
        "draining",
        "4 GiB, 25 %",
        "6 GiB, 30 % elastic",
        "8 GiB, 40 %",
        "7 GiB",
        "9 GiB",
    ):
        assert cell in row
    assert "ml/train:side: Found again." in said


TOLD = models.Explained(
    pod="ml/train", uid="uid", node="node1", phase="Pending", sentence="A predecessor still holds 1 GiB.",
    containers=(
        models.ContainerReason(
            container="main", state="waiting", sentence="No card has 8 GiB free now.", asked=amounts(8, 50),
            cards_wanted=2, maximum=amounts(16, 50), best=amounts(4, 25), slot=None,
            cards=(
                models.CardReason(
                    uuid="GPU-a", index=0, name="A100", total=amounts(16, 100), free=amounts(4, 40),
                    lacks=amounts(4, 10), trouble="",
                    holders=(
                        models.CardHolder(
                            name="ml/[big]:main", kind="slot", amounts=amounts(10, 50), used=3 * GIB
                        ),
                        models.CardHolder(
                            name="ml/soon:main", kind="reservation", amounts=amounts(2, 10), used=0
                        ),
                    ),
                ),
                models.CardReason(
                    uuid="GPU-b", index=1, name="A100", total=amounts(16, 100), free=amounts(16, 100),
                    lacks=amounts(0, 0), trouble="XID 79.", holders=(),
                ),
            ),
            refused=models.LastRefusal(code="card_full", sentence="No.", ago=1.2, since=40.0),
        ),
        models.ContainerReason(
            container="side", state="applied", sentence="In force.", asked=amounts(4, 25), cards_wanted=1,
            maximum=amounts(4, 25), best=amounts(4, 25), slot=a_slot("side"), cards=(), refused=None,
        ),
    ),
)  # fmt: skip


def test_explain_says_what_lacks_and_who_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeAgent(), FakeAgent(TOLD))
    said = invoke("explain", "ml/train")
    for words in (
        "ml/train on node1: Pending. A predecessor still holds 1 GiB.",
        "8 GiB and 50 % compute over 2 cards",
        "No card has 8 GiB free now.",
        "1 s ago (first 40 s ago), card_full: No.",
        "4 GiB and 10 % compute",
        "ml/[big]:main 10 GiB and 50 % compute (3 GiB used)",
        "ml/soon:main 2 GiB and 10 % compute (reserved)",
        "XID 79.",
        "6 GiB and 30 % compute, 8 GiB and 40 % compute held, 7 GiB used",
    ):
        assert words in said, words


def test_explain_as_json_is_what_the_api_says(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeAgent(TOLD))
    told = json.loads(invoke("explain", "ml/train", "--json"))
    assert told.pop("state_directory") == "/state0"
    assert msgspec.convert(told, models.Explained) == TOLD


def test_explain_of_an_unknown_pod_is_the_agents_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, FakeAgent(TOLD))
    assert invoke("explain", "none") == "The agent knows no pod default/none."


# -- nodes


def a_node(name: str = "n1", ready: bool = True, heartbeat: str = "", **spec: Any) -> gpunode.GpuNode:
    cards = tuple(
        gpunode.CardStatus(
            uuid=f"GPU-{index}", index=index, model="A100", healthy=healthy,
            reason="" if healthy else "XID 79.", capacity=gpunode.Amounts(64, 100),
            free=gpunode.Amounts(0, 0),
        )
        for index, healthy in ((1, False), (0, True))
    )  # fmt: skip
    held = gpunode.Amounts(16, 25)
    slot = gpunode.SlotStatus(
        uid="a", container="main", state="Applied", maximum=held, compute="hard", generation=1,
        slices=(gpunode.SliceStatus("GPU-0", held, held, held),),
    )  # fmt: skip
    status = gpunode.Status(
        ready=ready, heartbeat=heartbeat or (NOW - timedelta(seconds=4)).isoformat(), agent_version="1.2",
        cards=cards, slots=(slot,),
        conditions=(gpunode.Condition("UnmanagedProcesses", "True", "Found", "One is found."),),
    )  # fmt: skip
    return gpunode.GpuNode(Metadata(name, "uid"), gpunode.Spec(**spec), status)


def test_a_node_is_shown_with_what_slots_and_reservations_leave() -> None:
    promised = tuple(gpunode.Reservation(uid, "main", "GPU-0", gpunode.Amounts(8, 10)) for uid in ("a", "b"))
    seen = view(a_node(reservations=promised), NOW)
    assert seen.state == "ready"
    assert seen.heartbeat_age == 4.0
    assert seen.total == models.Amounts(memory=128 * MEMORY_UNIT, cores=200)
    assert seen.free == seen.largest == models.Amounts(memory=40 * MEMORY_UNIT, cores=65)
    assert [card.index for card in seen.cards] == [0, 1]
    assert (seen.slots, seen.reservations) == (1, 1)
    assert seen.conditions == ("One is found.",)


@pytest.mark.parametrize(
    ("ready", "heartbeat", "state", "age"),
    [
        (True, "2025-12-31T23:58:00Z", "silent", 120.0),
        (True, "2026-01-01T00:00:05Z", "ready", 0.0),
        (True, "yesterday", "silent", None),
        (True, "2026-01-01T00:00:00", "silent", None),
        (False, "2026-01-01T00:00:00Z", "not ready", 0.0),
    ],
)
def test_a_nodes_state_is_by_its_heartbeat(
    ready: bool, heartbeat: str, state: str, age: float | None
) -> None:
    seen = view(a_node(ready=ready, heartbeat=heartbeat), NOW)
    assert (seen.state, seen.heartbeat_age) == (state, age)


@pytest.fixture
def kube() -> Any:
    with FakeKubeApi() as kube:
        yield kube


def put(kube: FakeKubeApi, node: gpunode.GpuNode) -> None:
    body = {"apiVersion": gpunode.api_version(), "kind": gpunode.KIND, **msgspec.to_builtins(node)}
    kube.put(body, gpunode.path().removeprefix("/apis/"))


def test_nodes_are_listed_through_a_kubeconfig(kube: FakeKubeApi, tmp_path: Path) -> None:
    config = str(kube.kubeconfig(tmp_path / "config"))
    assert invoke("nodes", "--kubeconfig", config).startswith("No node of this cluster shares cards")
    for name in ("n2", "n1"):
        put(kube, a_node(name))
    said = invoke("nodes", "--kubeconfig", config)
    assert said.index("n1") < said.index("n2")
    assert "12 GiB / 32 GiB" in said
    assert "n1: card 1: XID 79." in said
    assert "n1: One is found." in said
    told = msgspec.convert(json.loads(invoke("nodes", "--kubeconfig", config, "--json")), list[NodeView])
    assert [each.name for each in told] == ["n1", "n2"]


def test_a_cluster_without_the_definition_is_told_what_to_apply(kube: FakeKubeApi, tmp_path: Path) -> None:
    kube.uninstall_crds()
    said = invoke("nodes", "--kubeconfig", str(kube.kubeconfig(tmp_path / "config")))
    assert "kubectl apply -f deploy/crd.yaml" in said


def test_a_cluster_that_cannot_be_asked_is_a_sentence(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    said = invoke("nodes", "--kubeconfig", missing)
    assert missing in said
    assert said.endswith(".")
