"""The real kube-scheduler with Gaia's extender, on two nodes: fill, refuse, free, wait, retry, evict.

The agents are played: each node's cards are told in its `GPUNode` and its resources in its status.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from gaia_plugin.kube import gpunode
from gaia_plugin.kube.placement import placement_key
from tests.cluster.cluster import Cluster
from tests.cluster.pods import Manifest, busybox_pod
from tests.cluster.polling import until
from tests.cluster.scheduler import (
    CORES,
    MEMORY,
    PATIENCE,
    Scheduler,
    check_placed,
    node_of,
    reserved,
    wait_bound,
    why_pending,
)

UNITS, CARDS = 64, 2


@pytest.fixture(scope="module")
def fresh() -> Iterator[Cluster]:
    """Two nodes whose kubelets never had a device plugin: they would not let its resources be played."""
    with Cluster() as running:
        running.add_node()
        yield running


@pytest.fixture
def two_nodes(fresh: Cluster) -> Cluster:
    fresh.alive()
    return fresh


@pytest.fixture(scope="module")
def scheduler(fresh: Cluster) -> Iterator[Scheduler]:
    made = Scheduler(fresh)
    try:
        for node in fresh.nodes:
            play_agent(fresh, node.name)
        made.start_extender()
        made.start_scheduler()
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def empty(two_nodes: Cluster, scheduler: Scheduler) -> Iterator[None]:
    """Nothing is reserved at a test's begin, and nothing may be left of it."""
    scheduler.alive()
    until("nothing is reserved", lambda: not reserved(two_nodes), PATIENCE)
    yield
    two_nodes.delete_pods()
    until("all is given back", lambda: scheduler.alive() and not reserved(two_nodes), PATIENCE)


def play_agent(cluster: Cluster, name: str) -> None:
    """Tell of a node's cards, as its agent and its kubelet would."""
    amounts = {MEMORY: str(UNITS * CARDS), CORES: str(100 * CARDS)}
    patch = json.dumps({"status": {"capacity": amounts}})
    cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
    body = {"apiVersion": gpunode.api_version(), "kind": gpunode.KIND, "metadata": {"name": name}}
    made = cluster.control.send("POST", gpunode.path(), body)
    whole = {"memory": UNITS, "cores": 100}
    cards = [
        {"uuid": f"GPU-{name}-{index}", "index": index, "model": "Tesla T4", "healthy": True,
         "capacity": whole, "free": whole}
        for index in range(CARDS)
    ]  # fmt: skip
    made["status"] = {"ready": True, "heartbeat": "2999-01-01T00:00:00Z", "cards": cards, "slots": []}
    cluster.control.send("PUT", gpunode.path(name, subresource="status"), made)
    until(
        f"{name} has its resources",
        lambda: MEMORY in cluster.get(f"/api/v1/nodes/{name}")["status"]["allocatable"],
        PATIENCE,
    )


def sliced_pod(name: str, units: int, cores: int, **more: Any) -> Manifest:
    """Return a pod that holds a slice until it is deleted."""
    script = "trap 'exit 0' TERM; sleep 3600 & wait"
    pod = busybox_pod(name, script, {MEMORY: str(units), CORES: str(cores)})
    pod["spec"] |= {"schedulerName": "gaia-scheduler", "terminationGracePeriodSeconds": 5, **more}
    return pod


def test_pods_fill_the_cards_and_each_knows_its_own(two_nodes: Cluster, scheduler: Scheduler) -> None:
    names = [f"whole-{index}" for index in range(4)]
    for name in names:
        two_nodes.apply(sliced_pod(name, UNITS, 100))
    wait_bound(two_nodes, scheduler, *names)
    cards = [card for name in names for card in check_placed(two_nodes, name)]
    assert len(set(cards)) == 4
    for name in names:
        two_nodes.wait(name, "Running", PATIENCE)


def test_a_pod_without_room_is_told_why_and_comes_in_when_there_is(
    two_nodes: Cluster, scheduler: Scheduler
) -> None:
    names = [f"part-{index}" for index in range(4)]
    for name in names:
        two_nodes.apply(sliced_pod(name, 40, 60))
    wait_bound(two_nodes, scheduler, *names)
    # each node has 48 units and 80 cores in all: kube-scheduler alone would let it in
    two_nodes.apply(sliced_pod("waits", 32, 50))
    said = "GPUs too full now: 8 GiB and 50 % compute of one card asked for, the largest free slice is 6 GiB"
    until("it is told why", lambda: said in why_pending(two_nodes, "waits"), PATIENCE)
    assert node_of(two_nodes, "waits") is None
    place = check_placed(two_nodes, "part-2")
    two_nodes.delete("part-2")
    wait_bound(two_nodes, scheduler, "waits")
    assert check_placed(two_nodes, "waits") == place


def test_a_storm_of_pods_gives_nothing_twice_though_the_extender_is_killed(
    two_nodes: Cluster, scheduler: Scheduler
) -> None:
    names = [f"storm-{index}" for index in range(16)]
    for index, name in enumerate(names):
        two_nodes.apply(sliced_pod(name, 16, 25))
        if index in (5, 11):
            assert scheduler.extender is not None
            scheduler.extender.stop(signal.SIGKILL)
            scheduler.start_extender()
    wait_bound(two_nodes, scheduler, *names)
    cards = [card for name in names for card in check_placed(two_nodes, name)]
    assert {card: cards.count(card) for card in cards} == dict.fromkeys(set(cards), 4)


def test_a_pod_that_matters_more_evicts_another(two_nodes: Cluster, scheduler: Scheduler) -> None:
    two_nodes.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "matters"},
         "value": 1000}
    )  # fmt: skip
    names = [f"whole-{index}" for index in range(4)]
    for name in names:
        two_nodes.apply(sliced_pod(name, UNITS, 100))
    wait_bound(two_nodes, scheduler, *names)
    two_nodes.apply(sliced_pod("important", UNITS, 100, priorityClassName="matters"))
    wait_bound(two_nodes, scheduler, "important")
    check_placed(two_nodes, "important")
    # the place of one whose containers have ended is given before its pod is gone
    until("one pod is gone", lambda: any(two_nodes.pod(name) is None for name in names), PATIENCE)
    left = [pod for name in names if (pod := two_nodes.pod(name)) is not None]
    assert len(left) == len(names) - 1
    assert not any("deletionTimestamp" in pod["metadata"] for pod in left)


def test_pods_of_others_are_left_to_the_clusters_scheduler(two_nodes: Cluster, scheduler: Scheduler) -> None:
    two_nodes.apply(busybox_pod("other", "exit 0"))
    two_nodes.wait("other", "Succeeded", PATIENCE)
    ours = busybox_pod("ours", "exit 0")
    ours["spec"]["schedulerName"] = "gaia-scheduler"
    two_nodes.apply(ours)
    two_nodes.wait("ours", "Succeeded", PATIENCE)
    assert placement_key() not in two_nodes.pod("ours")["metadata"].get("annotations", {})
