"""Scheduler, extender and the agents of two nodes: who is promised a card gets that card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gaia_plugin.kube import gpunode
from tests.cluster.agent import CARDS, UNITS, NodeAgent, has_its_own, said, sliced_pod
from tests.cluster.cluster import Cluster
from tests.cluster.pods import Manifest
from tests.cluster.polling import until
from tests.cluster.scheduler import PATIENCE, Scheduler, check_placed, reserved, wait_bound, why_pending

SHOWS = "say(**identity()); stay()"


class Site:
    """Two nodes with their agents, and the scheduler."""

    def __init__(self, cluster: Cluster, agents: dict[str, NodeAgent], scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.agents = agents
        self.scheduler = scheduler

    def apply(self, name: str, units: int, cores: int, **annotations: str) -> None:
        """Make a pod that says what it has and stays."""
        spec = {"schedulerName": "gaia-scheduler", "terminationGracePeriodSeconds": 2}
        self.cluster.apply(sliced_pod(name, SHOWS, units, cores, annotations, **spec))

    def running(self, name: str) -> Manifest:
        """Wait until a pod runs; return it."""
        wait_bound(self.cluster, self.scheduler, name)
        found: Manifest = self.cluster.wait(name, "Running", PATIENCE)
        return found

    def words(self, name: str) -> dict[str, Any]:
        """Return what a pod says of itself."""
        return until(f"{name} speaks", lambda: said(self.cluster, name), PATIENCE)[0]

    def slots(self) -> dict[str, tuple[str, str]]:
        """Return node and card of each slot that the agents tell of, by UID."""
        return {
            slot["uid"]: (node["metadata"]["name"], slot["slices"][0]["card"])
            for node in self.cluster.get(gpunode.path())["items"]
            for slot in node.get("status", {}).get("slots", [])
        }


@pytest.fixture(scope="module")
def site(second_node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    scheduler = Scheduler(second_node)
    agents = {
        node.name: NodeAgent.on(second_node, node, tmp_path_factory.mktemp(node.name))
        for node in second_node.nodes
    }
    try:
        for agent in agents.values():
            agent.start()
        scheduler.start_extender()
        scheduler.start_scheduler()
        yield Site(second_node, agents, scheduler)
    finally:
        second_node.delete_pods()
        scheduler.end()
        for agent in agents.values():
            agent.remove()


@pytest.fixture(autouse=True)
def all_offered(site: Site, two_nodes: Cluster) -> Iterator[None]:
    """The kubelets offer all cards at a test's begin: what the scheduler's own count is made of."""
    for agent in site.agents.values():
        if agent.program is None or agent.program.poll() is not None:
            agent.start()  # programs on nodes end with each test
        agent.wait_offered()
    yield
    two_nodes.delete_pods()
    until("all is given back", lambda: not reserved(site.cluster) and not site.slots(), PATIENCE)


def test_each_pod_gets_the_card_that_it_was_promised(site: Site, two_nodes: Cluster) -> None:
    names = [f"part-{index}" for index in range(6)]
    for name in names:
        site.apply(name, 40, 60)
    pods = {name: site.running(name) for name in names}
    promised = {name: check_placed(site.cluster, name) for name in names}
    assert len({card for cards in promised.values() for card in cards}) == len(names)
    for name, pod in pods.items():
        words = site.words(name)
        assert has_its_own(pod, words)
        assert [(pod["spec"]["nodeName"], words["cards"])] == promised[name]
        assert [site.slots()[pod["metadata"]["uid"]]] == promised[name]


def test_what_a_pod_has_grown_by_is_not_given_to_another(site: Site, two_nodes: Cluster) -> None:
    site.apply("rest-1", CARDS * UNITS, CARDS * 100)
    site.apply("rest-2", (CARDS - 1) * UNITS, (CARDS - 1) * 100)
    for name in ("rest-1", "rest-2"):
        site.running(name)
    site.apply("grows", 40, 30, **{"gaia.io/vgpu-max-memory": str(UNITS)})
    grows = site.running("grows")
    agent = site.agents[grows["spec"]["nodeName"]]
    agent.operator.resize(agent.slot(grows).slot, memory="20GiB")
    site.apply("waits", 40, 30)
    until("it is told why", lambda: why_pending(site.cluster, "waits"), PATIENCE)
    assert "nodeName" not in site.cluster.pod("waits")["spec"]
    agent.operator.resize(agent.slot(grows).slot, memory="10GiB")
    waits = site.running("waits")
    assert has_its_own(waits, site.words("waits"))
