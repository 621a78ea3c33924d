"""What cannot be had is said where people look: at the pod, in sentences, and never as a failed admission."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.agent import (
    MEMORY,
    PATIENCE,
    UNITS,
    NodeAgent,
    create,
    has_its_own,
    said,
    sliced_pod,
)  # fmt: skip
from tests.cluster.pods import Manifest
from tests.cluster.polling import until

SAY = "say(**identity()); stay()"


def with_plain_init_container() -> Manifest:
    """Return a pod whose init container asks for a slice."""
    pod = sliced_pod("refused", SAY, None, None)
    asking = sliced_pod("", "", 4, 10)["spec"]["containers"][0] | {"name": "prepare"}
    pod["spec"]["initContainers"] = [asking]
    return pod


REFUSED = {
    "a plain init container": (with_plain_init_container(), "a plain init container cannot hold a slice"),
    "cores alone": (sliced_pod("refused", SAY, None, 25), f"Memory is the limit {MEMORY}"),
    "memory above one card": (sliced_pod("refused", SAY, UNITS + 1, 100), "the largest card has 23.5 GiB"),
}


def waits_for(pod: Manifest) -> tuple[str, str]:
    """Return reason and message for which a pod's container waits."""
    told = pod["status"]
    for each in (*told.get("initContainerStatuses", ()), *told.get("containerStatuses", ())):
        waiting = each.get("state", {}).get("waiting", {})
        if waiting.get("message"):
            return waiting["reason"], waiting["message"]
    return "", ""


def events(agent: NodeAgent, name: str) -> list[dict[str, Any]]:
    """Return the events of a pod."""
    field = f"fieldSelector=involvedObject.name={name}"
    return list(agent.cluster.get(f"/api/v1/namespaces/default/events?{field}")["items"])


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_had_is_said_at_the_pod(agent: NodeAgent, case: str) -> None:
    manifest, sentence = REFUSED[case]
    create(agent.cluster, [manifest])
    said = until("the pod says why it waits", lambda: waits_for(agent.cluster.pod("refused"))[1], PATIENCE)
    assert sentence in said
    pod = agent.cluster.pod("refused")
    assert waits_for(pod)[0] == "CreateContainerConfigError"
    assert (pod["status"]["phase"], pod["status"].get("reason")) == ("Pending", None)
    assert any(sentence in event["message"] for event in events(agent, "refused"))
    assert agent.slots() == {}


def test_a_forged_placement_counts_for_nothing(agent: NodeAgent) -> None:
    (card, *_) = [card.uuid for card in agent.operator.cards()]
    forged = {"uid": "somebody", "node": agent.node.name, "containers": {"main": {card: [90, 90]}}}
    placement = {"gaia.io/placement": json.dumps(forged)}
    mark = agent.mark()
    create(agent.cluster, [sliced_pod("forger", SAY, 4, 10, placement)])
    agent.cluster.wait("forger")
    words = until("it has spoken", lambda: said(agent.cluster, "forger"), PATIENCE)
    assert has_its_own(agent.cluster.pod("forger"), words[0])
    assert "placement ignored" in agent.log(mark)
    until("the placement is put right", lambda: placed(agent, "forger").get("uid") != "somebody", PATIENCE)
    pod = agent.cluster.pod("forger")
    assert placed(agent, "forger") == {
        "uid": pod["metadata"]["uid"],
        "node": agent.node.name,
        "containers": {"main": {words[0]["cards"]: [4, 10]}},
    }


def placed(agent: NodeAgent, name: str) -> dict[str, Any]:
    """Return the placement that is written on a pod."""
    return dict(json.loads(agent.cluster.pod(name)["metadata"]["annotations"]["gaia.io/placement"]))


@pytest.fixture
def impatient(agent: NodeAgent) -> Iterator[NodeAgent]:
    """The agent, which deletes a pod without room after three seconds."""
    usual = agent.settings
    agent.settings = {**usual, "GAIA_NO_ROOM_SECONDS": "3"}
    agent.restart()
    yield agent
    agent.settings = usual
    agent.restart()


def test_a_pod_that_no_card_takes_is_deleted_with_the_number_that_would_do(impatient: NodeAgent) -> None:
    agent = impatient
    create(agent.cluster, [sliced_pod(f"big{number}", "stay()", 50, 10) for number in range(4)])
    for number in range(4):
        agent.cluster.wait(f"big{number}", timeout=PATIENCE)
    assert [len(card.slots) for card in agent.operator.cards()] == [1, 1, 1, 1]
    create(agent.cluster, [sliced_pod("late", "stay()", 60, 10)])
    agent.cluster.wait("late", "Gone", timeout=PATIENCE)
    (told,) = [event for event in events(agent, "late") if event["reason"] == "NoRoom"]
    assert "the largest free slice is 11 GiB and 90 % compute" in told["message"]
    assert (told["type"], told["reportingComponent"]) == ("Warning", "gaia.io/agent")
    assert len(agent.slots()) == 4
