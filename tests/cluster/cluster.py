"""A Kubernetes cluster for tests: the real components, in private namespaces of this machine.

with Cluster() as cluster:
    cluster.apply(busybox_pod("hello", "echo hello"))
    cluster.wait("hello", "Succeeded")
    cluster.logs("hello")
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import requests

from gaia_plugin.kube import gpunode
from tests.cluster import configs
from tests.cluster.build import HERE, Tools, tools
from tests.cluster.cgroups import Cgroup
from tests.cluster.configs import Options
from tests.cluster.control import Control
from tests.cluster.node import Node
from tests.cluster.polling import until

PREFIX = "gaia-cluster-"
_CRD = HERE.parents[1] / "deploy" / "crd.yaml"
_GRACE = {"gracePeriodSeconds": 1}  # 0 would take pods from the API before their containers end


class Cluster:
    """A control plane and `options.nodes` nodes, from `start` to `end`."""

    def __init__(self, options: Options | None = None, built: Tools | None = None):
        self.options = options or Options()
        self.tools = built or tools()
        sweep()
        self.directory, self._lock = _new_directory()
        self.log_directory = self.directory / "log"
        self.log_directory.mkdir()
        self.keep_logs = False
        self.control = Control(self.directory, self.log_directory, self.tools, self.options)
        self.nodes: list[Node] = []

    @property
    def kubeconfig(self) -> Path:
        """Return an administrator's kubeconfig for programs outside, such as the test itself."""
        return self.control.kubeconfig

    @property
    def inside_kubeconfig(self) -> Path:
        """Return an administrator's kubeconfig for programs on a node or in a pod with the host's network."""
        return self.control.inside_kubeconfig

    def start(self) -> None:
        """Start everything and wait until all nodes are Ready and pods can be made."""
        self.control.start()
        for _ in range(self.options.nodes):
            self.add_node()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        until("pods can be made", lambda: self.alive() and self.get(account), 60)

    def end(self) -> None:
        """Kill everything and remove every file; with `keep_logs` the logs stay."""
        with contextlib.ExitStack() as ends:  # the rest, too, if one of them fails
            ends.callback(self._remove_files)
            ends.callback(self.control.end)
            for node in self.nodes:
                ends.callback(node.end)

    def _remove_files(self) -> None:
        for entry in self.directory.iterdir():
            if entry == self.log_directory and self.keep_logs:
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self._lock.close()
        if not self.keep_logs:
            self.directory.rmdir()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            self.keep_logs = isinstance(error, Exception)  # not when somebody interrupts
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def add_node(self) -> Node:
        """Start one more node and wait until it is Ready."""
        used = {node.number for node in self.nodes}
        number = next(number for number in range(1, configs.MAX_NODES + 1) if number not in used)
        node = Node(self.control, number)
        self.nodes.append(node)
        node.start()
        return node

    def remove_node(self, node: Node) -> None:
        """Take a node off the cluster, with its pods, as if it had never been."""
        node.end()
        self.nodes.remove(node)
        self.control.disconnect(node.number)
        self.kubectl("delete", "node", node.name)
        field = f"--field-selector=spec.nodeName={node.name}"
        self.kubectl("delete", "pods", "--all-namespaces", field, "--force", "--grace-period=0")
        node.machine.remove()

    def alive(self) -> bool:
        """Return True; raise RuntimeError with its last lines if a component has ended by itself."""
        return self.control.alive() and all(node.alive() for node in self.nodes)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Run kubectl as administrator; return its output, raise RuntimeError with what it said."""
        done = subprocess.run(
            ["kubectl", "--cache-dir", str(self.directory / "kubectl"), *arguments],
            env={**os.environ, "PATH": self.tools.path, "KUBECONFIG": str(self.kubeconfig)},
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}\n{done.stdout}")
        return done.stdout

    def get(self, path: str) -> Any:
        """Return the object at a path of the API, or None."""
        return self.control.get(path)

    def apply(self, manifest: dict[str, Any]) -> None:
        """Create or change an object from its manifest."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def install_crds(self) -> None:
        """Apply deploy/crd.yaml and wait until the API server serves what it defines."""
        self.kubectl("apply", "--server-side", "-f", str(_CRD))
        self.kubectl("wait", "--for=condition=Established", "--timeout=50s", "-f", str(_CRD))
        until("GPUNodes are served", lambda: self.alive() and self._serves_gpunodes(), 60)

    def _serves_gpunodes(self) -> bool:
        try:
            return self.get(gpunode.path()) is not None
        except requests.HTTPError as error:
            if error.response.status_code == 429:  # it is about to serve them
                return False
            raise

    def pod(self, name: str, namespace: str = "default") -> Any:
        """Return a pod, or None."""
        return self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def pods_running(self, node: str | None = None) -> list[str]:
        """Return the names of the running pods (of a node), of all namespaces."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self.get("/api/v1/pods")["items"]
            if pod["status"].get("phase") == "Running" and node in (None, pod["spec"].get("nodeName"))
        )

    def wait(self, pod: str, phase: str = "Running", timeout: float = 60, namespace: str = "default") -> Any:
        """Wait until a pod is in a phase (or, for "Gone", is no more); return it.

        Raises RuntimeError as soon as it has ended in another one, with what Kubernetes says of it.
        """
        if phase == "Gone":
            until(f"pod {pod} is gone", lambda: self.alive() and not self.pod(pod, namespace), timeout)
            return None
        try:
            return until(f"pod {pod} is {phase}", lambda: self._in(pod, phase, namespace), timeout)
        except TimeoutError as late:
            raise TimeoutError(f"{late}\n{self.describe(pod, namespace)}") from None

    def _in(self, name: str, phase: str, namespace: str) -> Any:
        self.alive()
        pod = self.pod(name, namespace)
        now = pod["status"].get("phase") if pod else None
        if now in {"Succeeded", "Failed"} - {phase}:
            raise RuntimeError(f"pod {name} is {now}, not {phase}\n{self.describe(name, namespace)}")
        return pod if now == phase else None

    def describe(self, pod: str, namespace: str = "default") -> str:
        """Return what `kubectl describe` and the logs tell of a pod."""
        told = ""
        for words in (("describe", "pod"), ("logs", "--all-containers")):
            with contextlib.suppress(RuntimeError):
                told += self.kubectl(*words, "--namespace", namespace, pod)
        return told

    def logs(self, pod: str, container: str = "", namespace: str = "default") -> str:
        """Return what a pod's container has printed."""
        return self.kubectl("logs", "--namespace", namespace, pod, *_container(container))

    def exec(self, pod: str, argv: Sequence[str], container: str = "", namespace: str = "default") -> str:
        """Run a program in a pod's container; return its output."""
        return self.kubectl("exec", "--namespace", namespace, pod, *_container(container), "--", *argv)

    def delete(self, pod: str, namespace: str = "default") -> None:
        """Delete a pod and wait until it is gone."""
        self.control.send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod}", _GRACE)
        self.wait(pod, "Gone", namespace=namespace)

    def delete_pods(self, namespace: str = "default") -> None:
        """Delete all pods of a namespace at once, and wait until no container of theirs is left."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.control.send("DELETE", path, _GRACE)
        until(f"namespace {namespace} has no pods", lambda: not self.get(path)["items"], 60)

    def tails(self, lines: int = 15) -> str:
        """Return the last lines of every log, for a failed test's report."""
        return "\n".join(
            f"--- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
            for log in sorted(self.log_directory.glob("*.log"))
        )


def sweep() -> None:
    """Remove what clusters left whose process was killed; their own processes died with it."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = _owned(directory)
        except (BlockingIOError, FileNotFoundError):
            continue  # in use, or kept for its logs
        with lock:
            for machine in directory.iterdir():
                if machine.is_dir():
                    group = Cgroup(f"{directory.name}-{machine.name}")
                    for pid in group.processes():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    group.remove()
            shutil.rmtree(directory)


def _new_directory() -> tuple[Path, IO[str]]:
    """Make a cluster's directory; it is ours for as long as the returned file is open."""
    directory = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    for hidden in ("/var", "/etc", "/run", "/dev"):
        if directory.is_relative_to(hidden):
            directory.rmdir()
            raise RuntimeError(f"a test cluster cannot lie below {hidden}: set TMPDIR to a folder elsewhere")
    directory.chmod(0o755)
    # it bears its name only when it is locked: a sweep of another process must not take it for left over
    file = (directory / "lock.new").open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    (directory / "lock.new").rename(directory / "lock")
    return directory, file


def _owned(directory: Path) -> IO[str]:
    """Lock a directory whose cluster is gone. Raises BlockingIOError if it is not."""
    file = (directory / "lock").open("r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def _container(name: str) -> list[str]:
    return ["--container", name] if name else []
