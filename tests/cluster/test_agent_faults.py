"""SIGKILL of the agent at any moment while pods come, restart and go: in the end all records agree.

The kubelet is restarted in between.
"""

import random
import signal
import time
from dataclasses import dataclass

import pytest

from gaia_plugin.units import MEMORY_UNIT
from tests.cluster.agent import (
    CORES,
    MEMORY,
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

PODS = "/api/v1/namespaces/default/pods"
MOST_PODS = 8
LIVE = "card = Card(); card.take(100 * MIB); say(**identity()); stay()"


@dataclass
class Storm:
    """Pods that come, restart and go, whether there is an agent or not."""

    agent: NodeAgent
    dice: random.Random
    made: int = 0
    killed: int = 0
    failed: int = 0

    def pods(self) -> list[Manifest]:
        """Return the pods that are there and were not told to go."""
        found = self.agent.cluster.get(PODS)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def step(self, *, create: bool = True) -> None:
        """Let one thing happen. Without a plugin the kubelet gives pods up, so none are made then."""
        pods = self.pods()
        for pod in pods:
            if pod["status"]["phase"] == "Failed":
                assert pod["status"].get("reason") == "UnexpectedAdmissionError", pod["status"]
                self.failed += 1
                self.delete(pod)
        if create and len(pods) < MOST_PODS:
            for _ in range(MOST_PODS - len(pods)):
                self.create()
        elif pods and self.dice.random() < 0.5:
            self.delete(self.dice.choice(pods))
        elif pods:
            self.kill(self.dice.choice(pods))

    def create(self) -> None:
        """Make a pod of a random size."""
        self.made += 1
        size = self.dice.randint(6, 30), self.dice.randint(1, 30)
        create(self.agent.cluster, [sliced_pod(f"storm{self.made}", LIVE, *size, restartPolicy="Always")])

    def delete(self, pod: Manifest) -> None:
        """Delete a pod, sometimes by force."""
        grace = {"gracePeriodSeconds": self.dice.choice([0, 1, 1])}
        self.agent.cluster.control.send("DELETE", f"{PODS}/{pod['metadata']['name']}", grace)

    def kill(self, pod: Manifest) -> None:
        """Kill a pod's container, if it runs."""
        if "running" not in status(pod).get("state", {}):
            return
        self.killed += 1
        container = status(pod)["containerID"].removeprefix("containerd://")
        kill = f"ctr --namespace k8s.io tasks kill --signal KILL {container} || true"
        self.agent.node.machine.sh(kill)


def calm(agent: NodeAgent, storm: Storm) -> list[Manifest]:
    """Wait until as many pods as may be run; return them."""

    def all_run() -> list[Manifest] | None:
        agent.alive()
        pods = storm.pods()
        if len(pods) < MOST_PODS or any(pod["status"]["phase"] == "Failed" for pod in pods):
            storm.step()
            return None
        speak = all("running" in status(pod).get("state", {}) for pod in pods)
        return pods if speak and len(pods) == len(agent.cluster.get(PODS)["items"]) else None

    return until("every pod runs", all_run, PATIENCE, every=0.5)


def compare(agent: NodeAgent, pods: list[Manifest]) -> None:
    """Compare ledger, directories, mounts, specs and what the pods themselves say."""
    uids = {pod["metadata"]["uid"] for pod in pods}
    until("the rest is given back", lambda: {slot.owner for slot in agent.slots().values()} == uids, PATIENCE)
    slots = {slot.owner: slot for slot in agent.slots().values()}
    for pod in pods:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        slot = slots[pod["metadata"]["uid"]]
        assert slot.state == "applied"
        for amounts in (slot.requested, slot.granted, slot.held):
            assert amounts.memory == int(limits[MEMORY]) * MEMORY_UNIT
            assert amounts.cores == int(limits[CORES])
        name = pod["metadata"]["name"]
        words = until(f"{name} has spoken", lambda name=name: said(agent.cluster, name), PATIENCE)
        assert has_its_own(pod, words[-1])
    until("no directory is left over", lambda: agent.directories() == set(agent.slots()), PATIENCE)
    until("no mount is left over", lambda: agent.mounts() == len(pods), PATIENCE)
    until("no spec is left over", lambda: set(agent.specs().values()) == uids, PATIENCE)
    assert len(agent.specs()) == 2 * len(pods)
    for card in agent.operator.cards():
        assert card.free.memory >= 0
        assert card.free.cores >= 0
        mine = [part for slot in slots.values() for part in slot.cards if part.uuid == card.uuid]
        assert card.free.memory == card.total.memory - sum(part.held.memory for part in mine)


def kill_often(agent: NodeAgent, times: int, seed: int) -> Storm:
    """Kill the agent again and again; half of its lives are long enough for pods to be admitted."""
    dice = random.Random(seed)
    storm, mark = Storm(agent, dice), 0
    for number in range(times):
        if dice.random() < 0.6:
            agent.wait_serving(mark)
            for _ in range(dice.randrange(1, 5)):
                storm.step()
        time.sleep(dice.random() * 1.5)
        agent.stop(signal.SIGKILL)
        storm.step(create=False)
        if number % 5 == 4:
            agent.node.restart_kubelet(dice.choice([signal.SIGKILL, signal.SIGTERM]))
        mark = agent.mark()
        agent.launch()
    agent.wait_serving(mark)
    compare(agent, calm(agent, storm))
    assert "Traceback" not in agent.log(mark)
    return storm


def test_ten_kills_and_all_records_agree(agent: NodeAgent) -> None:
    storm = kill_often(agent, 10, seed=4)
    assert storm.made > MOST_PODS, "pods came and went"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_kills_and_all_records_agree(agent: NodeAgent, seed: int) -> None:
    kill_often(agent, 20, seed)
