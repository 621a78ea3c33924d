"""Agent, kubelet, container and node restart: who runs keeps what it has."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.units import GIB
from tests.cluster.agent import (
    PATIENCE,
    NodeAgent,
    create,
    has_its_own,
    said,
    sliced_pod,
    status,
)
from tests.cluster.pods import Manifest
from tests.cluster.polling import until
from tests.cluster.test_agent_slices import MOST_6_GIB

HOLD = """
card = Card()
say(take=card.take(GIB), memory=card.memory(), **identity())
stay()
"""


@pytest.fixture
def pod(agent: NodeAgent) -> Manifest:
    """A pod that holds 1 of its 4 GiB, and runs for ever."""
    create(agent.cluster, [sliced_pod("steady", HOLD, 16, 25, MOST_6_GIB, restartPolicy="Always")])
    return wait_said(agent, "steady", 0)


def wait_said(agent: NodeAgent, name: str, restarts: int) -> Manifest:
    """Wait until a pod has restarted so often and its program has spoken."""

    def speaks() -> Manifest | None:
        pod = agent.cluster.pod(name)
        seen = status(pod)
        running = seen.get("restartCount", 0) >= restarts and "running" in seen.get("state", {})
        return pod if agent.alive() and running and said(agent.cluster, name) else None

    return until(f"{name} has restarted {restarts} times", speaks, PATIENCE)


def now(agent: NodeAgent) -> dict[str, Any]:
    """Return what a new process in the container finds."""
    code = "from tenant import *; say(**identity())"
    return dict(json.loads(agent.cluster.exec("steady", [sys.executable, "-c", code])))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_restarts_of_agent_and_kubelet_change_nothing(
    agent: NodeAgent, pod: Manifest, how: signal.Signals
) -> None:
    before, slot = now(agent), agent.slot(pod)
    assert has_its_own(pod, before)
    agent.stop(how)
    mark = agent.mark()
    agent.launch()
    agent.wait_serving(mark)
    assert now(agent) == before
    mark = agent.mark()
    agent.node.restart_kubelet(how)
    agent.wait_registered(mark)
    agent.wait_offered()
    assert now(agent) == before
    assert agent.slot(pod).cards == slot.cards
    after = agent.cluster.pod("steady")
    assert status(after)["containerID"] == status(pod)["containerID"]
    assert status(after)["restartCount"] == 0


def test_a_container_that_starts_again_has_the_same_card_and_nothing_in_use(
    agent: NodeAgent, pod: Manifest
) -> None:
    before, (first,) = said(agent.cluster, "steady"), agent.slot(pod).processes
    agent.node.exec(["kill", "-KILL", str(first.pid)])
    again = wait_said(agent, "steady", 1)
    assert said(agent.cluster, "steady") == before
    (second,) = agent.slot(again).processes
    assert (second.memory, second.pid != first.pid) == (first.memory, True)


def test_a_kubelet_that_has_the_agent_before_its_pods_brings_them_back_after_a_loss_of_power(
    agent: NodeAgent, pod: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the agent is not a pod; here the API server is out of reach until it has registered."""
    before, slot = said(agent.cluster, "steady"), agent.slot(pod)
    node, start_kubelet = agent.node, agent.node.start_kubelet

    def start_with_agent() -> None:
        mark = agent.mark()
        agent.cluster.control.cut(node.number)
        agent.launch()

        def mend() -> None:
            try:
                agent.wait_registered(mark)
            finally:
                agent.cluster.control.mend(node.number)

        mender = threading.Thread(target=mend)
        mender.start()
        start_kubelet()
        mender.join()

    with monkeypatch.context() as patch:
        patch.setattr(node, "start_kubelet", start_with_agent)
        node.reboot()
    agent.wait_offered()
    until("another container runs", lambda: is_another(agent, pod), PATIENCE)
    assert said(agent.cluster, "steady") == before
    assert agent.slot(pod).cards == slot.cards


def is_another(agent: NodeAgent, pod: Manifest) -> bool:
    """Return whether a pod runs in another container than before, and has spoken."""
    now = agent.cluster.pod("steady")
    assert now["status"]["phase"] != "Failed", now["status"]
    seen = status(now)
    other = seen.get("containerID") != status(pod)["containerID"]
    return other and "running" in seen["state"] and bool(said(agent.cluster, "steady"))


def test_a_pod_that_the_kubelet_gives_up_after_a_loss_of_power_gives_its_slice_back(
    agent: NodeAgent, pod: Manifest
) -> None:
    """The kubelet fails a pod whose plugin has not registered yet, as an agent in a pod cannot have."""
    agent.node.reboot()
    assert agent.cluster.wait("steady", "Failed")["status"]["reason"] == "UnexpectedAdmissionError"
    agent.start()
    agent.wait_empty()
    agent.cluster.delete("steady")
    create(agent.cluster, [sliced_pod("steady", HOLD, 16, 25, MOST_6_GIB, restartPolicy="Always")])
    pod = wait_said(agent, "steady", 0)
    assert has_its_own(pod, said(agent.cluster, "steady")[0])


@contextmanager
def api_server_away(agent: NodeAgent) -> Iterator[None]:
    """Nothing of this node reaches the API server meanwhile."""
    agent.cluster.control.cut(agent.node.number)
    try:
        yield
    finally:
        agent.cluster.control.mend(agent.node.number)


def test_without_an_api_server_pods_go_on_shrink_and_restart(agent: NodeAgent, pod: Manifest) -> None:
    assert agent.socket(pod).resize(memory="6GiB").state == "applied"
    with api_server_away(agent):
        (first,) = agent.slot(pod).processes
        assert agent.socket(pod).resize(memory="5GiB").state == "applied"
        with pytest.raises(Refusal, match="Nothing starts or grows on this node now") as refused:
            agent.socket(pod).resize(memory="6GiB")
        assert refused.value.code is Code.UNAVAILABLE
        agent.node.exec(["kill", "-KILL", str(first.pid)])
        until("another process has its memory", lambda: runs_anew(agent, pod, first.pid), PATIENCE)
        mark = agent.mark()
        agent.stop(signal.SIGKILL)
        agent.launch()
        agent.wait_registered(mark)
        until("the agent answers", lambda: agent.alive() and agent.reachable(), PATIENCE)
        assert agent.slot(pod).granted.memory == 5 * GIB
        assert agent.socket(pod).resize(memory="4GiB").state == "applied"
    again = wait_said(agent, "steady", 1)
    agent.wait_serving(mark)
    # one that asks while the agent is killed ends, and is started once more
    assert status(again)["restartCount"] in (1, 2)
    (words,) = said(agent.cluster, "steady")
    # it may have asked before the shrink or after it, when the agent was there again
    assert words["total"] in (4 * GIB, 5 * GIB)
    assert words["memory"][1] in (4 * GIB, 5 * GIB)
    assert now(agent)["total"] == 4 * GIB
    assert agent.slots().keys() == {agent.slot(pod).slot}
    assert agent.socket(pod).resize(memory="6GiB").state == "applied"


def runs_anew(agent: NodeAgent, pod: Manifest, before: int) -> bool:
    """Return whether one other process than before holds its gigabyte."""
    slot = agent.slot(pod)
    return [each.pid != before and each.memory >= GIB for each in slot.processes] == [True]
