"""The test cluster itself: what tests of the agent, the scheduler and the hub rely on."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.build import HERE, go, go_environment
from tests.cluster.cluster import Cluster
from tests.cluster.pods import busybox_pod, python_pod
from tests.cluster.polling import until

SLEEP = "trap exit TERM; while :; do sleep 1; done"
INTERFACES = {"nodes", "pods", "node1", "node2"}


def test_a_pod_runs_and_its_logs_are_read(cluster: Cluster) -> None:
    cluster.apply(busybox_pod("hello", "echo hello from $WHO", env={"WHO": "busybox"}))
    cluster.wait("hello", "Succeeded")
    assert cluster.logs("hello") == "hello from busybox\n"


def test_a_program_runs_in_a_pod(cluster: Cluster) -> None:
    cluster.apply(busybox_pod("sleeper", SLEEP))
    cluster.wait("sleeper")
    assert cluster.pods_running(cluster.nodes[0].name) == ["sleeper"]
    assert cluster.exec("sleeper", ["hostname"]) == "sleeper\n"


def test_a_pod_that_ends_otherwise_is_told_at_once_and_with_its_words(cluster: Cluster) -> None:
    cluster.apply(busybox_pod("broken", "echo no such card; exit 3"))
    with pytest.raises(RuntimeError, match=r"(?s)broken is Failed, not Succeeded.*no such card"):
        cluster.wait("broken", "Succeeded")


def test_this_machines_python_runs_in_a_pod_and_asks_the_api_server(cluster: Cluster) -> None:
    code = """
import ctypes, os, requests
account = "/var/run/secrets/kubernetes.io/serviceaccount"
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
token = {"Authorization": "Bearer " + open(account + "/token").read()}
answer = requests.get(server + "/version", headers=token, verify=account + "/ca.crt")
print(answer.json()["gitVersion"], ctypes.CDLL("libc.so.6").getpid() == os.getpid())
"""
    cluster.apply(python_pod("python", code))
    cluster.wait("python", "Succeeded")
    assert cluster.logs("python") == f"{_server_version(cluster)} True\n"


def test_containers_outlive_a_restart_of_the_kubelet(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    cluster.apply(busybox_pod("steady", SLEEP))
    before = _container(cluster.wait("steady"))
    sockets = node.path("/var/lib/kubelet/device-plugins/kubelet.sock")
    socket = sockets.stat().st_ctime_ns
    node.restart_kubelet(signal.SIGKILL)
    assert sockets.stat().st_ctime_ns != socket
    assert _container(cluster.wait("steady")) == before
    assert cluster.exec("steady", ["echo", "still here"]) == "still here\n"


def test_pods_come_back_after_a_loss_of_power(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    pod = busybox_pod("daemon", SLEEP)
    pod["spec"]["restartPolicy"] = "Always"
    cluster.apply(pod)
    before = _container(cluster.wait("daemon"))
    node.path("/var/lib/kept").write_text("kept")
    node.path("/run/lost").write_text("lost")
    node.reboot()
    until("its container is another one", lambda: _container(cluster.pod("daemon")) != before, 60)
    cluster.wait("daemon")
    assert node.path("/var/lib/kept").read_text() == "kept"
    assert not node.path("/run/lost").exists()


def test_a_program_on_a_node_has_the_nodes_files_network_and_processes(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    assert node.exec(["hostname"]) == f"{node.name}\n"
    assert f"inet {node.address}/24" in node.exec(["ip", "-4", "address"])
    code = """
import os, signal, pathlib
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
pathlib.Path("/run/agent.pid").write_text(f"{os.getpid()} {os.environ['GREETING']}")
os.rename("/run/agent.pid", "/run/agent.ready")
signal.sigwait({signal.SIGTERM})
print("told to end", flush=True)
"""
    program = node.popen([sys.executable, "-c", code], env={"GREETING": "hi"}, name="agent")
    ready = node.path("/run/agent.ready")
    until("the program is ready", lambda: program.alive() and ready.exists(), 30)
    assert ready.read_text() == f"{program.pid_inside} hi"
    assert not Path("/run/agent.ready").exists()
    assert program.stop() == 0
    assert program.tail() == "told to end"


def test_a_second_node_comes_and_pods_reach_each_other(two_nodes: Cluster) -> None:
    one, two = two_nodes.nodes
    for node in (one, two):
        serve = f"while :; do echo from {node.name} | nc -l -p 8080; done"
        two_nodes.apply(busybox_pod(f"on-{node.name}", serve, node=node.name))
    addresses = {node.name: two_nodes.wait(f"on-{node.name}")["status"]["podIP"] for node in two_nodes.nodes}
    for here, there in ((one, two), (two, one)):
        ask = ["sh", "-c", f"until nc {addresses[there.name]} 8080; do sleep 0.1; done"]
        assert two_nodes.exec(f"on-{here.name}", ask) == f"from {there.name}\n"
    assert two_nodes.pods_running(two.name) == [f"on-{two.name}"]


def test_an_ended_cluster_leaves_nothing() -> None:
    with Cluster() as cluster:
        cluster.apply(busybox_pod("sleeper", SLEEP))
        cluster.wait("sleeper")
        groups = [machine.cgroup for machine in (cluster.control.machine, cluster.nodes[0].machine)]
        processes = {pid for group in groups for pid in group.processes()}
        assert len(processes) >= 8
        assert not INTERFACES & _interfaces()
    _assert_nothing_left(cluster.directory, processes)


def test_a_cluster_whose_test_was_killed_is_swept_by_the_next() -> None:
    code = """
from tests.cluster.cluster import Cluster
from tests.cluster.configs import Options
cluster = Cluster(Options(nodes=0))
cluster.start()
print(cluster.directory, *cluster.control.machine.cgroup.processes(), flush=True)
input()
"""
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=HERE.parents[1], **pipes) as starter:
        # the first lines may tell of a build
        directory, *pids = next(line for line in starter.stdout if line.startswith("/")).split()
        starter.kill()
    processes = {int(pid) for pid in pids}
    assert len(processes) >= 5
    until("its processes are gone", lambda: not _alive(processes), 30)
    cluster = Cluster()
    cluster.end()
    _assert_nothing_left(Path(directory), processes)
    _assert_nothing_left(cluster.directory, set())


@pytest.mark.long
def test_the_program_also_compiles_against_an_older_kubernetes() -> None:
    command = ["nice", str(go()), "vet", "-modfile=older.mod", "."]
    done = subprocess.run(command, cwd=HERE / "go", env=go_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]


def _server_version(cluster: Cluster) -> str:
    return json.loads(cluster.kubectl("version", "--output=json"))["serverVersion"]["gitVersion"]


def _container(pod: dict[str, Any]) -> tuple[str, int]:
    (status,) = pod["status"]["containerStatuses"]
    return status.get("containerID"), status["restartCount"]


def _interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def _alive(processes: set[int]) -> set[int]:
    """Return those that have not ended; a zombie has."""
    found = set()
    for pid in processes:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            found.add(pid)
    return found


def _assert_nothing_left(directory: Path, processes: set[int]) -> None:
    assert not directory.exists()
    assert not _alive(processes)
    assert directory.name not in Path("/proc/self/mountinfo").read_text()
    groups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if directory.name in path]
    assert groups == []
    assert not INTERFACES & _interfaces()
