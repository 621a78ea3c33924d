"""Programs that go past the library, in real containers: told of, and stopped where others would pay."""

from typing import Any

from tests.cluster.agent import UNITS, NodeAgent, said, sliced_pod, status
from tests.cluster.polling import until

PAST = """
class Past(Card):
    def __init__(self):
        real = ctypes.CDLL("/run/gaia/driver/libcuda.so.1")
        ctypes.CDLL = lambda name: real
        super().__init__()
"""
"""A card by the driver's own library."""


def events(agent: NodeAgent, pod: str) -> dict[str, str]:
    """Return what was said of a pod, by reason."""
    found = agent.cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return {each["reason"]: each.get("note", "") for each in found if each["regarding"]["name"] == pod}


def condition(agent: NodeAgent) -> dict[str, Any]:
    """Return the node's condition of unmanaged processes."""
    node = agent.cluster.get(f"/apis/gaia.io/v1alpha1/gpunodes/{agent.node.name}")
    found = node["status"].get("conditions", ())
    return next((each for each in found if each["type"] == "UnmanagedProcesses"), {})


def test_a_program_past_the_library_is_told_of_on_its_pod_and_its_node(agent: NodeAgent) -> None:
    until("the node says that all is well", lambda: condition(agent).get("status") == "False", 60)
    agent.cluster.apply(sliced_pod("past", f"{PAST}\nsay(take=Past().take(1 << 30))\nstay()", 16, 25))
    pod = agent.cluster.wait("past", timeout=120)
    until("it has taken", lambda: said(agent.cluster, "past") == [{"take": 0}], 60)
    until("the pod says so", lambda: "NoLibrary" in events(agent, "past"), 60)
    assert "holds 1.3 GiB of card" in events(agent, "past")["NoLibrary"]
    until("the node says so", lambda: condition(agent).get("status") == "True", 60)
    assert condition(agent)["message"].startswith("default/past: Process ")
    assert "did not register with Gaia's library" in agent.slot(pod).note
    agent.cluster.delete("past")
    until("all is well again", lambda: condition(agent).get("status") == "False", 60)


def test_a_container_that_takes_what_others_were_promised_is_stopped(agent: NodeAgent) -> None:
    others = [sliced_pod(f"quiet-{number}", "stay()", UNITS - 16, 50) for number in range(4)]
    for pod in others:
        agent.cluster.apply(pod)
    for pod in others:
        agent.cluster.wait(pod["metadata"]["name"], timeout=120)
    code = f"{PAST}\nsay(take=Past().take(8 << 30))\nstay()"
    agent.cluster.apply(sliced_pod("taker", code, 16, 25, restartPolicy="Never"))
    pod = agent.cluster.wait("taker", "Failed", timeout=120)
    assert status(pod)["state"]["terminated"]["exitCode"] == 137
    until("the pod says why", lambda: "Stopped" in events(agent, "taker"), 60)
    assert "8.3 GiB of card" in events(agent, "taker")["Stopped"]
    assert "and 4 GiB were given; the card lacked 4.5 GiB" in events(agent, "taker")["Stopped"]
    until("it has given all back", lambda: len(agent.slots()) == 4, 60)
    for each in others:
        agent.cluster.wait(each["metadata"]["name"], timeout=10)
