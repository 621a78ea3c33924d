"""What an operator finds when something is wrong: what is said on a real API server, and who comes back."""

import json
import sys
from pathlib import Path
from typing import Any

from gaia_plugin.agent.lock import LOCKED
from gaia_plugin.kube import gpunode
from tests.cluster.agent import PATIENCE, NodeAgent, manifests, sliced_pod
from tests.cluster.polling import until

GAIA = Path(sys.prefix, "bin/gaia")
CRD = "gpunodes.gaia.io"


def explained(agent: NodeAgent, pod: str) -> dict[str, Any]:
    """Return what `gaia explain` on the node says of a pod."""
    told: dict[str, Any] = json.loads(agent.node.exec([GAIA, "explain", pod, "--json"]))
    return told


def written(agent: NodeAgent) -> bool:
    """Tell whether the node's object is there and says that it is ready."""
    found = agent.cluster.get(gpunode.path(agent.node.name))
    return bool(found and found.get("status", {}).get("ready"))


def test_a_second_agent_with_a_state_of_its_own_ends(agent: NodeAgent) -> None:
    settings = {**agent.settings, "GAIA_STATE": "/var/lib/other", "GAIA_METRICS_ADDRESS": "off"}
    second = agent.node.popen([GAIA, "agent", "--kubernetes"], settings, name="second")
    assert until("it ends", lambda: second.poll(), PATIENCE) == LOCKED
    assert "A node has one agent" in second.tail()
    assert agent.alive()


def test_a_definition_that_goes_and_comes_back_is_told_and_survived(agent: NodeAgent) -> None:
    agent.cluster.apply(sliced_pod("runs", "stay()", 16, 10, {"gaia.io/vgpu-max-memory": "8Gi"}))
    pod = agent.cluster.wait("runs", timeout=PATIENCE)
    agent.cluster.kubectl("delete", "crd", CRD)
    agent.cluster.apply(sliced_pod("waits", "stay()", 4, 10))

    def refused() -> bool:
        """Tell whether the pod that waits was refused, and for what."""
        told = explained(agent, "waits") if agent.cluster.pod("waits")["spec"].get("nodeName") else {}
        return "deploy/crd.yaml" in told.get("sentence", "") and told["containers"][0]["best"] is None

    until("it is said what is to be applied", refused, PATIENCE)
    assert agent.socket(pod).resize(memory="2GiB").state == "applied"
    agent.cluster.install_crds()
    agent.cluster.wait("waits", timeout=PATIENCE)
    until("the object is there again", lambda: written(agent), PATIENCE)


def test_a_role_that_is_too_small_is_told_with_what_to_apply(agent: NodeAgent) -> None:
    agent.cluster.apply(sliced_pod("runs", "stay()", 16, 10, {"gaia.io/vgpu-max-memory": "8Gi"}))
    agent.cluster.wait("runs", timeout=PATIENCE)
    role = next(each for each in manifests() if each["kind"] == "ClusterRole")
    small = [rule for rule in role["rules"] if rule["resources"] != ["gpunodes/status"]]
    agent.cluster.apply({**role, "rules": small})
    grow = [GAIA, "resize", "runs", "--memory", "8GiB"]
    shrink = [GAIA, "resize", "runs", "--memory", "1GiB"]

    def refused() -> str:
        """Return what a grow is refused with; the role is in force a moment after it was applied."""
        agent.node.exec(shrink)
        try:
            agent.node.exec(grow)
        except RuntimeError as error:
            return str(error)
        return ""

    assert "deploy/agent.yaml" in until("a grow is refused", refused, PATIENCE)
    agent.cluster.apply(role)
    until("a grow is granted", lambda: not refused(), PATIENCE)
