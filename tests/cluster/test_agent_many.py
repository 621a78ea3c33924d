"""Many pods, the same names, the same devices: nobody ever has another's slice."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from gaia_plugin.units import MEMORY_UNIT
from tests.cluster.agent import (
    CARDS,
    CORES,
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

PODS = "/api/v1/namespaces/default/pods"
SAY = "say(**identity()); stay()"


def run_at_once(agent: NodeAgent, manifests: Sequence[Manifest], seconds: float = PATIENCE) -> None:
    """Create pods, wait until all have spoken, and check that each has its own."""
    create(agent.cluster, manifests)
    waiting = {manifest["metadata"]["name"] for manifest in manifests}

    def all_speak() -> bool:
        agent.alive()
        pods = {pod["metadata"]["name"]: pod for pod in agent.cluster.get(PODS)["items"]}
        for name in sorted(waiting & pods.keys()):
            assert pods[name]["status"]["phase"] != "Failed", agent.cluster.describe(name)
            if pods[name]["status"]["phase"] == "Running" and (words := said(agent.cluster, name)):
                assert has_its_own(pods[name], words[0]), (pods[name]["metadata"], words)
                waiting.remove(name)
        return not waiting

    until("all pods have spoken", all_speak, seconds, every=0.5)


def test_two_pods_of_one_size_at_once_never_swap(agent: NodeAgent) -> None:
    for round_ in range(3):
        run_at_once(agent, [sliced_pod(f"twin{round_}{each}", SAY, 16, 25) for each in "ab"])
    assert len(agent.slots()) == 6


def sizes(count: int, seed: int, units: int, cores: int) -> list[tuple[int, int]]:
    """Return sizes of pods by chance, each up to so many units and cores; a context takes more than one."""
    dice = random.Random(seed)
    return [(dice.randint(2, units), dice.randint(1, cores)) for _ in range(count)]


def test_twenty_pods_of_different_sizes_at_once_have_their_own(agent: NodeAgent) -> None:
    mark = agent.mark()
    pods = [sliced_pod(f"many{number}", SAY, *size) for number, size in enumerate(sizes(20, 4, 15, 15))]
    run_at_once(agent, pods)
    assert len(agent.slots()) == 20
    assert "not started" not in agent.log(mark)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_pods_have_their_own(agent: NodeAgent, seed: int) -> None:
    pods = [sliced_pod(f"many{number}", SAY, *size) for number, size in enumerate(sizes(50, seed, 6, 7))]
    run_at_once(agent, pods, 600)


@pytest.mark.long
def test_sixty_four_small_pods_at_once_all_start_at_the_first_try(agent: NodeAgent) -> None:
    mark = agent.mark()
    run_at_once(agent, [sliced_pod(f"small{number}", SAY, 2, 3) for number in range(64)], 600)
    assert "not started" not in agent.log(mark)


# says all the time what it has, where it can be read when the pod is gone
SAY_ON = """
import sys, time
sys.stdout = open(f"/seen/{os.environ['POD_UID']}", "w")
while True:
    say(**identity())
    time.sleep(0.1)
"""
SEEN = "/var/lib/seen"


def comeback(size: tuple[int, int]) -> Manifest:
    """Return a pod whose name is always the same, and that writes what it has to SEEN."""
    pod = sliced_pod("comeback", SAY_ON, *size)
    seen = {"name": "machine", "mountPath": "/seen", "subPath": SEEN.lstrip("/")}
    pod["spec"]["containers"][0]["volumeMounts"].append(seen)
    return pod


def seen_of(agent: NodeAgent, uid: str) -> list[dict[str, Any]]:
    """Return what a pod has written; the last line may be half written."""
    path = agent.node.path(SEEN) / uid
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_a_name_that_comes_back_at_once_is_another_pod(agent: NodeAgent) -> None:
    dice = random.Random(22)
    agent.node.machine.sh(f"mkdir -p {SEEN}")
    pods = []
    for size in sizes(8, 22, 30, 30):
        create(agent.cluster, [comeback(size)])
        pods.append(agent.cluster.pod("comeback"))
        uid = pods[-1]["metadata"]["uid"]
        if dice.random() < 0.5:
            until("it has spoken", lambda uid=uid: agent.alive() and seen_of(agent, uid), PATIENCE)
        else:
            until("its slot is made", lambda uid=uid: agent.alive() and made(agent, uid), PATIENCE)
        agent.cluster.control.send("DELETE", f"{PODS}/comeback", {"gracePeriodSeconds": 0})
    run_at_once(agent, [sliced_pod("comeback", SAY, 3, 4)])
    assert sum(bool(seen_of(agent, pod["metadata"]["uid"])) for pod in pods) >= 3
    for pod in pods:
        for words in seen_of(agent, pod["metadata"]["uid"]):
            assert has_its_own_or_less(pod, words), (pod["metadata"], words)


def has_its_own_or_less(pod: Manifest, words: dict[str, Any]) -> bool:
    """Return whether a pod has its own; taken from the API by force, it may have nothing any more."""
    whole = {"granted": words["granted"], "total": words["total"]}
    size = int(pod["spec"]["containers"][0]["resources"]["limits"][MEMORY]) * MEMORY_UNIT
    cores = int(pod["spec"]["containers"][0]["resources"]["limits"][CORES])
    if whole["granted"] == [0, 0]:
        whole["granted"] = [size, cores]
    if whole["total"] == 0:
        whole["total"] = size
    return has_its_own(pod, words | whole)


def made(agent: NodeAgent, uid: str) -> bool:
    """Return whether a pod has a slot."""
    return any(slot.owner == uid for slot in agent.slots().values())


def test_the_same_devices_for_the_next_pod_are_another_name(agent: NodeAgent) -> None:
    """The whole node, again and again: the kubelet gives the same IDs each time."""
    names: list[set[str]] = []
    for number in range(3):
        run_at_once(agent, [sliced_pod(f"whole{number}", SAY, CARDS * UNITS, CARDS * 100)])
        names.append(set(agent.specs()))
        agent.cluster.delete(f"whole{number}")
        agent.wait_empty()
    assert len(set().union(*names)) == 6
    assert len({frozenset(name[:16] for name in each) for each in names}) == 1
