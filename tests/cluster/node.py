"""A node of a test cluster: containerd and a kubelet on a machine of its own."""

import shutil
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests

from tests.cluster import configs
from tests.cluster.build import SYSTEM_PATH
from tests.cluster.control import INSIDE, Control
from tests.cluster.machine import Machine
from tests.cluster.polling import until
from tests.cluster.program import Program


class Node:
    """Node `node<number>`, from 1; its files outlive a reboot."""

    def __init__(self, control: Control, number: int):
        tools = control.machine.tools
        self.number = number
        self.name = f"node{number}"
        self.address = configs.node_address(number)
        self.control = control
        self.machine = Machine(self.name, control.files.with_name(self.name), control.machine.logs, tools)
        self._configure()

    def start(self) -> None:
        """Start containerd and the kubelet and wait until the node is Ready."""
        self.machine.power_on()
        self.control.connect(self.address, self.machine.pid, self.number)
        self.machine.sh(
            f"""
            ip addr add {self.address}/24 dev eth0
            ip link set eth0 up
            ip route add default via {configs.CONTROL_ADDRESS}
            """
        )
        containerd = self.machine.component(["containerd"])
        socket = self.path("/run/containerd/containerd.sock")
        until("containerd listens", lambda: containerd.alive() and socket.exists(), 60)
        for image in sorted(self.machine.tools.images.glob("*.tar")):
            self.exec(["ctr", "--namespace", "k8s.io", "images", "import", "--local", image], timeout=120)
        self.start_kubelet()
        until(f"{self.name} is Ready", lambda: self.alive() and self.ready(), 120)

    def start_kubelet(self) -> None:
        """Start the kubelet and wait until it answers and has heard of its pods."""
        kubelet = self.machine.component(["kubelet", *configs.kubelet_flags(self.name, self.number)])
        until(f"the kubelet of {self.name} knows its pods", lambda: kubelet.alive() and self._knows(), 60)

    def stop_kubelet(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the kubelet; pods run on."""
        self.machine.stop_component("kubelet", how)

    def restart_kubelet(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the kubelet and start it anew."""
        self.stop_kubelet(how)
        self.start_kubelet()

    def reboot(self) -> None:
        """Cut the power and start again: files stay; processes, mounts and `/run` do not.

        A program that `popen` started has to be started again by the caller.
        """
        self.machine.power_off()
        self.start()

    def end(self) -> None:
        """Kill everything on it; its files stay for `Cluster.end` to remove."""
        self.machine.power_off()

    def exec(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> str:
        """Run a program on the node (its files, network and processes), return its output."""
        return self.machine.exec(argv, env, timeout)

    def popen(
        self, argv: Sequence[str | Path], env: Mapping[str, str] | None = None, name: str | None = None
    ) -> Program:
        """Start a program on the node; its output goes to the log `<node>-<name>.log`.

        The fixture `cluster` ends it with the test.
        """
        return self.machine.popen(argv, env, name)

    def path(self, inside: str | Path) -> Path:
        """Return where a file of the node is seen from here, for as long as the node is up."""
        return self.machine.path(inside)

    def wait_for(self, offered: Mapping[str, int], timeout: float = 60) -> None:
        """Wait until the node offers at least so much of each resource, in a report made after this call.

        An earlier report may be of a device plugin or a kubelet that has gone: a pod that the scheduler
        sends because of it is refused for good.
        """
        asked = datetime.now(UTC)

        def offers() -> bool:
            status = self.control.get(f"/api/v1/nodes/{self.name}")["status"]
            beats = (each["lastHeartbeatTime"] for each in status["conditions"] if each["type"] == "Ready")
            amounts = (int(status["allocatable"].get(name, 0)) >= count for name, count in offered.items())
            return self.alive() and datetime.fromisoformat(next(beats)) > asked and all(amounts)

        until(f"{self.name} offers {dict(offered)}", offers, timeout)

    def ready(self) -> bool:
        """Return whether the API server calls the node Ready."""
        node = self.control.get(f"/api/v1/nodes/{self.name}")
        conditions = node["status"].get("conditions", []) if node else []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def alive(self) -> bool:
        """Return True; raise RuntimeError with its last lines if containerd or the kubelet has ended."""
        return self.machine.alive()

    def _knows(self) -> bool:
        """Return whether the kubelet answers, and with every pod that the API server gave it."""
        own = f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}"
        try:
            known = self.control.get(f"/api/v1/nodes/{self.name}/proxy/pods")
        except requests.RequestException:
            return False
        return known is not None and _uids(self.control.get(own)) <= _uids(known)

    def _configure(self) -> None:
        """Write the files of /etc before the machine is up: its overlay shows them then."""
        etc = self.machine.directory / "etc"
        authority = self.control.authority
        names = [self.name, self.address]
        client = authority.issue(self.name, f"system:node:{self.name}", "system:nodes", names)
        kubernetes = etc / "kubernetes"
        kubernetes.mkdir(mode=0o755)
        authority.kubeconfig(kubernetes / "kubelet.conf", INSIDE, client)
        shutil.copy(authority.certificate, kubernetes / "ca.crt")
        for file in client:
            shutil.copy(file, kubernetes / f"kubelet{file.suffix}")
        (kubernetes / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # there is no name service
        configs.write(kubernetes / "kubelet.yaml", configs.kubelet(self.number, self.control.options))
        configs.write(etc / "cni/net.d/10-pods.conflist", configs.cni(self.number))
        runc = shutil.which("runc", path=SYSTEM_PATH)
        containerd = etc / "containerd/config.toml"
        containerd.parent.mkdir()
        containerd.write_text(configs.containerd(self.machine.tools.runtime, runc))


def _uids(pods: Any) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods["items"] or ()}
