"""What a pod gets of the agent on a real kubelet: its slice of a card, its limits, its socket."""

import pytest

from gaia_plugin.units import GIB
from tests.cluster.agent import CARDS, CORES, MEMORY, UNITS, NodeAgent, said, sliced_pod

LIFE = """
card = Card()
say(total=card.total, fill=card.fill(), tampering=tampering(), granted=granted())
code, answer = ask("PATCH", {"memory": "6GiB"})
say(code=code, state=answer.get("state"), total=card.total, fill=card.fill())
code, answer = ask("PATCH", {"memory": "7GiB"})
say(code=code, refused=answer.get("code"), best=answer.get("best_offer"))
"""
HELD = {"total": 4 * GIB, "fill": [0, 2], "tampering": [], "granted": [4 * GIB, 25]}
GROWN = {"code": 200, "state": "applied", "total": 6 * GIB, "fill": [0, 2]}
MOST_6_GIB = {"gaia.io/vgpu-max-memory": "24"}
USERS = {"root": {}, "jovyan": {"securityContext": {"runAsUser": 1000, "runAsGroup": 100}}}


def test_the_node_offers_its_cards(agent: NodeAgent) -> None:
    for what in ("allocatable", "capacity"):
        offered = agent.offered(what)
        assert (offered[MEMORY], offered[CORES]) == (str(CARDS * UNITS), str(CARDS * 100))
    told = agent.cluster.kubectl("describe", "node", agent.node.name)
    assert [line.split()[1] for line in told.splitlines() if line.split()[:1] == [f"{MEMORY}:"]] == [
        str(CARDS * UNITS)
    ] * 2


@pytest.mark.parametrize("user", USERS)
def test_a_pod_is_held_to_its_slice_and_grows(agent: NodeAgent, user: str) -> None:
    agent.cluster.apply(sliced_pod("sliced", LIFE, 16, 25, MOST_6_GIB, **USERS[user]))
    agent.cluster.wait("sliced", "Succeeded", timeout=120)
    first, grown, refused = said(agent.cluster, "sliced")
    assert (first, grown) == (HELD, GROWN)
    assert (refused["code"], refused["refused"]) == (409, "over_maximum")
    assert refused["best"]["memory"] == 6 * GIB


def test_an_empty_environment_changes_nothing(agent: NodeAgent) -> None:
    code = """
import subprocess, sys
program = "from tenant import *; say(cards=[[card.total, card.fill()] for card in Card.all().values()])"
path = f"import sys; sys.path.append({os.environ['PYTHONPATH']!r}); "
subprocess.run(["env", "-i", sys.executable, "-c", path + program], check=True)
"""
    agent.cluster.apply(sliced_pod("bare", code, 16, 25))
    agent.cluster.wait("bare", "Succeeded", timeout=120)
    assert said(agent.cluster, "bare") == [{"cards": [[4 * GIB, [0, 2]]]}]
