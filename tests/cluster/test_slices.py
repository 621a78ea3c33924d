"""The agent of a node on a real kubelet: pods are held to their slices of a simulated GPU."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gaia_plugin.sim import make_sim
from tests.cluster.cluster import Cluster
from tests.cluster.pods import python_pod
from tests.cluster.program import Program

Start = Callable[[], Program]

ASK = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert (cu.cuInit(0), cu.cuDeviceGet(ctypes.byref(device), 0)) == (0, 0)
assert cu.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
assert cu.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
allocate = lambda mib: cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20))
print(total.value >> 20, allocate(1025), allocate(200))
"""
GIB = {"gaia.io/vgpu-memory": 4, "gaia.io/vgpu-cores": 50}
HELD = "1024 2 0\n"  # MiB in all; out of memory above the slice; success below


@pytest.fixture
def start_agent(cluster: Cluster, tmp_path: Path) -> Start:
    """Starts `gaia agent --kubernetes` on the node; it has a simulated card and waits for pods then."""
    node = cluster.nodes[0]
    settings = {
        "GAIA_NODE_NAME": node.name,
        "GAIA_KUBECONFIG": str(cluster.inside_kubeconfig),
        "GAIA_DRIVER": str(make_sim(tmp_path / "driver")),
    }

    def start() -> Program:
        agent = node.popen([Path(sys.prefix, "bin/gaia"), "agent", "--kubernetes"], settings, name="agent")
        node.wait_for(dict.fromkeys(GIB, 1))
        return agent

    return start


def test_a_pod_is_held_to_its_slice(cluster: Cluster, start_agent: Start) -> None:
    start_agent()
    cluster.apply(python_pod("sliced", ASK, resources=GIB))
    cluster.wait("sliced", "Succeeded")
    assert cluster.logs("sliced") == HELD


def test_a_slice_outlives_agent_and_kubelet(cluster: Cluster, start_agent: Start) -> None:
    agent = start_agent()
    cluster.apply(python_pod("sliced", "import signal; signal.sigwait({signal.SIGTERM})", resources=GIB))
    cluster.wait("sliced")
    ask = [sys.executable, "-c", ASK]
    assert cluster.exec("sliced", ask) == HELD
    agent.stop(signal.SIGKILL)
    assert cluster.exec("sliced", ask) == HELD
    cluster.nodes[0].restart_kubelet()
    start_agent()
    assert cluster.exec("sliced", ask) == HELD
    assert cluster.pod("sliced")["status"]["containerStatuses"][0]["restartCount"] == 0
