"""What a real kubelet and a real containerd make of a device plugin that names CDI devices."""

import sys

import pytest

from tests.cluster.build import HERE
from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.pods import busybox_pod, python_pod
from tests.cluster.polling import until

RESOURCE = "gaia.test/thing"


@pytest.fixture
def node(cluster: Cluster) -> Node:
    """A node with the plugin of guests/ running on it."""
    node = cluster.nodes[0]
    node.popen([sys.executable, "-W", "error", HERE / "guests/device_plugin.py"], name="device-plugin")
    node.wait_for({RESOURCE: 4})
    return node


def test_a_container_gets_what_the_cdi_device_says(cluster: Cluster, node: Node) -> None:
    code = "import os; print(os.environ['THING'], len(open('/usr/lib/held').read().split()))"
    cluster.apply(python_pod("holder", code, resources={RESOURCE: 2}))
    cluster.wait("holder", "Succeeded")
    assert cluster.logs("holder") == "from CDI 2\n"


def test_a_refused_start_is_told_and_heals(cluster: Cluster, node: Node) -> None:
    refuse = node.path("/run/refuse")
    refuse.write_text("No card has room for 2 things.")
    cluster.apply(busybox_pod("waiting", "echo $THING", resources={RESOURCE: 2}))
    until("the pod tells why it waits", lambda: "No card has room" in waits_for(cluster, "waiting"), 60)
    refuse.unlink()
    cluster.wait("waiting", "Succeeded")
    assert cluster.logs("waiting") == "from CDI\n"


def test_it_registers_again_with_a_restarted_kubelet(cluster: Cluster, node: Node) -> None:
    cluster.apply(busybox_pod("before", "while :; do sleep 1; done", resources={RESOURCE: 3}))
    cluster.wait("before")
    node.restart_kubelet()
    node.wait_for({RESOURCE: 4})
    cluster.apply(busybox_pod("after", "echo $THING", resources={RESOURCE: 1}))
    cluster.wait("after", "Succeeded")
    assert cluster.pods_running() == ["before"]


def waits_for(cluster: Cluster, pod: str) -> str:
    """Return what its first container waits for."""
    statuses = cluster.pod(pod)["status"].get("containerStatuses", [{}])
    waiting = statuses[0].get("state", {}).get("waiting", {})
    return f"{waiting.get('reason')} {waiting.get('message')}"
