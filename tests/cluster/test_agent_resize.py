"""A running pod grows and shrinks; node, `GPUNode`, kubelet and card agree at each step.

One card of 94 units. Agent and kubelet are restarted in between, and nothing changes by that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gaia_plugin.sim import SimConfig, make_sim
from gaia_plugin.units import GIB, MIB
from tests.cluster.agent import MEMORY, PATIENCE, NodeAgent, said, sliced_pod, status
from tests.cluster.cluster import Cluster
from tests.cluster.pods import Manifest
from tests.cluster.polling import until

UNITS = 94
FIRST = """
import time
def until_total(size):
    while card.total != size:
        time.sleep(0.02)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
card = Card()
say(total=card.total, took=[card.take(3 * GIB), card.take(GIB)])
until_total(8 * GIB)
say(total=card.total, took=[card.take(4 * GIB), card.take(GIB)])
until_total(4 * GIB)
say(total=card.total, took=[card.take(1)], free=card.memory()[0])
signal.sigwait({signal.SIGUSR1})
card.give_back()
say(total=card.total, took=[card.take(512 * MIB)])
stay()
"""
STAYS = "card = Card(); say(total=card.total, fill=card.fill()); stay()"


class OneCard:
    """A node whose agent has one card, and what is told of it by everybody."""

    def __init__(self, agent: NodeAgent) -> None:
        self.agent = agent
        self.cluster = agent.cluster

    def start(self, units: int) -> None:
        """Start the agent and wait until it serves and the node offers so much."""
        mark = self.agent.mark()
        self.agent.launch()
        self.agent.wait_registered(mark)
        self.offers(units)

    def restart_all(self, units: int) -> None:
        """Restart agent and kubelet."""
        self.agent.stop()
        self.agent.node.restart_kubelet()
        self.start(units)

    def offers(self, units: int) -> None:
        """Wait until `kubectl describe node` says that so much can be allocated."""

        def told() -> bool:
            text = self.cluster.kubectl("describe", "node", self.agent.node.name)
            lines = text.partition("Allocatable:")[2].partition("System Info:")[0].splitlines()
            return [line.split()[1] for line in lines if line.split()[:1] == [f"{MEMORY}:"]] == [str(units)]

        until(f"the node offers {units} units", told, PATIENCE, every=0.3)

    def gpunode(self) -> dict[str, Any]:
        """Return what `kubectl get gpunode -o json` shows."""
        found: dict[str, Any] = json.loads(
            self.cluster.kubectl("get", "gpunode", self.agent.node.name, "-o", "json")
        )
        return found

    def says(self, free: int, **slots: tuple[str, int, int]) -> None:
        """Wait until `kubectl get gpunode` shows so much free, and of each pod state, granted and held."""
        seen: dict[str, Any] = {}

        def same() -> bool:
            told = self.gpunode()["status"]
            seen["free"] = told["cards"][0]["free"]["memory"]
            seen["slots"] = {
                each["pod"].partition("/")[2]: (
                    each["state"],
                    each["slices"][0]["granted"]["memory"],
                    each["slices"][0]["held"]["memory"],
                )
                for each in told.get("slots", ())
            }
            return seen == {"free": free, "slots": slots}

        try:
            until("the GPUNode is right", same, PATIENCE, every=0.3)
        except TimeoutError:
            raise AssertionError(f"wanted {free} free and {slots}; shown are {seen}") from None

    def pod(self, name: str) -> Manifest:
        """Return a pod as it is now."""
        found: Manifest = self.cluster.get(f"/api/v1/namespaces/default/pods/{name}")
        return found

    def runs(self, name: str) -> Manifest:
        """Wait until a pod's container runs."""

        def running() -> Manifest | None:
            pod = self.pod(name)
            return pod if "running" in status(pod).get("state", {}) else None

        return until(f"{name} runs", running, PATIENCE, every=0.2)

    def says_line(self, name: str, number: int) -> dict[str, Any]:
        """Wait for a line that a pod prints."""
        return until(
            f"{name} says line {number}", lambda: said(self.cluster, name)[number - 1 : number], PATIENCE
        )[0]


@pytest.fixture
def card(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneCard]:
    folder = tmp_path_factory.mktemp("resize")
    driver = make_sim(folder / "one", SimConfig(cards=1, memory=24 * GIB, reserved=512 * MIB))
    agent = NodeAgent.on(cluster, cluster.nodes[0], folder, GAIA_DRIVER=str(driver))
    found = OneCard(agent)
    found.start(UNITS)
    yield found
    cluster.delete_pods()
    agent.wait_empty()
    agent.remove()


def test_a_pod_grows_and_shrinks_while_it_runs_and_everybody_agrees(card: OneCard) -> None:
    cluster, agent = card.cluster, card.agent
    cluster.apply(sliced_pod("first", FIRST, 16, 25, {"gaia.io/vgpu-max-memory": "32"}))
    born = status(card.runs("first"))
    assert card.says_line("first", 1) == {"total": 4 * GIB, "took": [0, 2]}
    card.says(UNITS - 16, first=("Applied", 16, 16))

    # it grows by its socket
    pod = card.pod("first")
    assert agent.socket(pod).resize(memory="8GiB").state == "applied"
    assert card.says_line("first", 2) == {"total": 8 * GIB, "took": [0, 2]}
    card.says(UNITS - 32, first=("Applied", 32, 32))
    card.offers(UNITS - 16)  # what its pod asks for is 16 of them, and the rest is not to be had
    card.restart_all(UNITS - 16)
    card.says(UNITS - 32, first=("Applied", 32, 32))

    # another takes exactly what is left
    cluster.apply(sliced_pod("second", STAYS, UNITS - 32, 25))
    card.runs("second")
    assert card.says_line("second", 1)["fill"] == [0, 2]
    card.says(0, first=("Applied", 32, 32), second=("Applied", UNITS - 32, UNITS - 32))
    cluster.apply(sliced_pod("third", STAYS, 8, 25))

    # an operator shrinks the first below what it uses
    wish = json.dumps({"memory": "4GiB"})
    cluster.kubectl("annotate", "pod", "first", f"gaia.io/vgpu-desired={wish}")
    third = card.says_line("first", 3)
    assert (third["took"], third["free"]) == ([2], 0)
    uses = 7 * 4 + 2  # units: seven GiB, and a context that is rounded up
    card.says(UNITS - 62 - uses, first=("Draining", 16, uses), second=("Applied", 62, 62))
    assert card.pod("third")["status"]["phase"] == "Pending"
    agent.stop()
    card.start(16 + 62 + UNITS - 62 - uses)  # the IDs that are out, and what is left
    card.says(UNITS - 62 - uses, first=("Draining", 16, uses), second=("Applied", 62, 62))

    # it gives back, and the third starts on what was given back
    container = born["containerID"].removeprefix("containerd://")
    agent.node.machine.sh(f"ctr --namespace k8s.io tasks kill --signal USR1 {container}")
    assert card.says_line("first", 4) == {"total": 4 * GIB, "took": [0]}
    card.runs("third")
    assert card.says_line("third", 1)["fill"] == [0, 2]
    card.says(
        UNITS - 16 - 62 - 8, first=("Applied", 16, 16), second=("Applied", 62, 62), third=("Applied", 8, 8)
    )
    card.offers(UNITS)

    now = status(card.pod("first"))
    same = ("containerID", "restartCount", "state")
    assert {key: now[key] for key in same} == {key: born[key] for key in same}
    told = cluster.kubectl("describe", "pod", "first")
    assert told.count("Resized") >= 2
