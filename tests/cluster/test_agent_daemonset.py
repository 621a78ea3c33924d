"""The agent as it is shipped: a privileged pod of a DaemonSet, with a service account of its own."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin import cli
from gaia_plugin.sim import make_sim
from gaia_plugin.units import GIB
from tests.cluster.agent import (
    CARD,
    NAMESPACE,
    PATIENCE,
    NodeAgent,
    allow,
    manifests,
    said,
    sliced_pod,
)
from tests.cluster.cluster import Cluster
from tests.cluster.pods import Manifest, python_pod
from tests.cluster.polling import until
from tests.cluster.test_agent_slices import GROWN, HELD, LIFE, MOST_6_GIB

PACKAGE = Path(cli.__file__).parent
DRIVER = Path("/run/nvidia/driver/usr/lib/x86_64-linux-gnu")
"""Where a driver's container shows its libraries to the node: nobody tells the agent."""


def daemonset() -> Manifest:
    """Return the shipped manifest with this machine's Python and simulated cards."""
    (shipped,) = [manifest for manifest in manifests() if manifest["kind"] == "DaemonSet"]
    pod = shipped["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    from_here = python_pod("", "", mounts=[PACKAGE])["spec"]
    (python,) = from_here["containers"]
    container["image"], container["imagePullPolicy"] = python["image"], "Never"
    container["command"] = [f"{sys.prefix}/bin/gaia", *container["command"][1:]]
    container["volumeMounts"] += python["volumeMounts"]
    pod["spec"]["volumes"] += from_here["volumes"]
    pod["spec"]["dnsPolicy"] = "Default"
    return shipped


@pytest.fixture
def in_a_pod(cluster: Cluster, tmp_path: Path) -> Iterator[NodeAgent]:
    """The agent in its pod, for the tests' questions."""
    allow(cluster)
    agent = NodeAgent(cluster, cluster.nodes[0], DRIVER, {})
    shutil.copytree(make_sim(tmp_path / "driver", CARD), agent.node.path(DRIVER))
    cluster.apply(daemonset())
    agent.wait_offered()
    yield agent
    cluster.delete_pods()
    agent.wait_empty()
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gaia-agent"
    cluster.control.send("DELETE", path, {"propagationPolicy": "Foreground"})
    until("the agent's pod is gone", lambda: not pods(cluster), PATIENCE)
    agent.remove()
    shutil.rmtree(agent.node.path(DRIVER))


def gaia(agent: NodeAgent, *words: str) -> str:
    """Return what `gaia` says in the agent's pod."""
    (pod,) = pods(agent.cluster)
    return agent.cluster.exec(
        pod["metadata"]["name"], [f"{sys.prefix}/bin/gaia", *words], namespace=NAMESPACE
    )


def pods(cluster: Cluster) -> list[Manifest]:
    """Return the agent's pods."""
    return list(cluster.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])


def test_an_agent_in_a_pod_holds_pods_to_their_slices(in_a_pod: NodeAgent) -> None:
    agent, cluster = in_a_pod, in_a_pod.cluster
    cluster.apply(sliced_pod("sliced", LIFE, 16, 25, MOST_6_GIB))
    cluster.wait("sliced", "Succeeded", timeout=PATIENCE)
    first, grown, _ = said(cluster, "sliced")
    assert (first, grown) == (HELD, GROWN)
    cluster.apply(sliced_pod("steady", "card = Card(); say(take=card.take(GIB)); stay()", 16, 25, MOST_6_GIB))
    pod = cluster.wait("steady", timeout=PATIENCE)
    until("its memory is seen", lambda: agent.slot(pod).used >= GIB, PATIENCE)
    assert "default/steady" in gaia(agent, "slots")
    assert gaia(agent, "resize", "default/steady", "--memory", "4GiB").startswith("applied")
    found = {
        each["what"]: (each["verdict"], each["sentence"])
        for each in json.loads(gaia(agent, "doctor", "--json"))
    }
    assert {what: told for what, told in found.items() if told[0] != "good"}.keys() <= {"hostPID"}
    assert {"kubelet", "registered", "mounts", "CDI", "runtime", "API server", "NVML"} <= found.keys()
    (before,) = pods(cluster)
    cluster.delete(before["metadata"]["name"], NAMESPACE)
    until("another agent serves", lambda: agent.reachable() and pods(cluster), PATIENCE)
    agent.wait_offered()
    assert agent.slot(pod).granted.memory == 4 * GIB
    until("its memory is seen again", lambda: agent.slot(pod).used >= GIB, PATIENCE)
    assert agent.socket(pod).resize(memory="5GiB").state == "applied"
    assert agent.mounts() == 1
