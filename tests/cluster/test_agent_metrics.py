"""What Prometheus reads of an agent on a real node: a pod's slice, and the node's heartbeat."""

import sys

from gaia_plugin.units import GIB
from tests.cluster.agent import CARDS, NodeAgent, sliced_pod
from tests.cluster.polling import until
from tests.unit.metrics.conftest import Told

SCRAPE = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9478/metrics", timeout=30).read().decode())
"""
BEAT = "gaia_last_heartbeat_timestamp_seconds"


def scraped(agent: NodeAgent) -> Told:
    return Told.read(agent.node.exec([sys.executable, "-I", "-c", SCRAPE]).encode())


def test_a_pods_slice_is_told_while_it_is_there(agent: NodeAgent) -> None:
    agent.cluster.apply(sliced_pod("told", "import time; time.sleep(3600)", 16, 25))
    pod = agent.cluster.wait("told", "Running", timeout=120)
    page = scraped(agent)
    whose = {"node": agent.node.name, "namespace": "default", "pod": "told", "container": "main"}
    assert page.value("gaia_slot_memory_granted_bytes", **whose, uid=pod["metadata"]["uid"]) == 4 * GIB
    assert page.value("gaia_slot_compute_granted_ratio", **whose) == 0.25
    assert page.value("gaia_slot_state", **whose, state="applied") == 1
    assert page.all("gaia_card_healthy") == [1] * CARDS
    assert page.value("gaia_allocations_total") >= 2
    assert page.value("gaia_prestarts_total", outcome="ok") >= 2
    until("the API server has taken the node's status", lambda: scraped(agent).all(BEAT), 60)
    agent.cluster.delete("told")
    until("the slot is not told any more", lambda: not scraped(agent).all("gaia_slot_state"), 60)
