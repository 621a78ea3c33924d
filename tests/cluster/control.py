"""The control plane of a test cluster, on a machine of its own: etcd, API server, controllers, scheduler."""

import subprocess
from pathlib import Path
from typing import Any

import requests

from tests.cluster import configs
from tests.cluster.build import Tools
from tests.cluster.forward import Forward
from tests.cluster.machine import Machine
from tests.cluster.pki import Authority
from tests.cluster.polling import until

INSIDE = f"https://{configs.CONTROL_ADDRESS}:443"


class Control:
    """Runs the control plane; `kubeconfig` is for programs out here, `inside_kubeconfig` for inside."""

    def __init__(self, directory: Path, logs: Path, tools: Tools, options: configs.Options):
        self.options = options
        self.machine = Machine("control", directory / "control", logs, tools)
        self.files = self.machine.directory
        self.authority = Authority(directory / "pki")
        self.pki = self.authority.directory
        self.kubeconfig = directory / "kubeconfig"
        self.inside_kubeconfig = directory / "inside.kubeconfig"
        self._forward: Forward | None = None
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy between us and ourselves
        self._server = ""

    def start(self) -> None:
        """Start all four and wait until they answer."""
        self._issue()
        self.machine.power_on()
        self.machine.sh(
            f"""
            ip link add nodes type bridge
            ip addr add {configs.CONTROL_ADDRESS}/24 dev nodes
            ip link set nodes up
            ip addr add {configs.SERVICE_ADDRESS}/32 dev lo
            """
        )
        self._open()
        etcd = configs.write(self.files / "etcd.yaml", configs.etcd(self.files / "etcd"))
        self.machine.component(["etcd", etcd])
        flags = configs.apiserver(self.pki, self.files / "apiserver", self.options.apiserver)
        self.machine.component(["kube-apiserver", *flags])
        until("the API server is ready", lambda: self.alive() and self._ready(), 120)
        kubeconfig = self.files / "controllers.conf"
        flags = configs.controllers(self.pki, self.files / "controllers", kubeconfig)
        self.machine.component(["kube-controller-manager", *flags])
        kubeconfig = self.files / "scheduler.conf"
        scheduler = configs.scheduler(kubeconfig, self.options.extenders)
        config = configs.write(self.files / "scheduler.yaml", scheduler)
        flags = configs.scheduler_flags(config, self.files / "scheduler", kubeconfig)
        self.machine.component(["kube-scheduler", *flags])

    def end(self) -> None:
        """Kill everything."""
        if self._forward:
            self._forward.close()
        self._session.close()
        self.machine.power_off()

    def alive(self) -> bool:
        """Return True; raise RuntimeError with its last lines if a component has ended."""
        return self.machine.alive()

    def get(self, path: str) -> Any:
        """Return what the API server has at a path, None if there is no such thing."""
        answer = self._session.get(self._server + path, timeout=30)
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.json()

    def text(self, path: str) -> str:
        """Return the text at a path, such as a health check's. Raises requests.RequestException."""
        answer = self._session.get(self._server + path, timeout=5)
        answer.raise_for_status()
        return answer.text

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request with a JSON body; None if there is no such thing."""
        answer = self._session.request(method, self._server + path, json=body, timeout=30)
        if answer.status_code == 404:
            return None
        if not answer.ok:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")
        return answer.json()

    def connect(self, address: str, pid: int, number: int) -> None:
        """Lay a cable from a node's `eth0` to the bridge, and route the node's pods to it."""
        cable = f"node{number}"
        pair = ["ip", "link", "add", cable, "netns", str(self.machine.pid), "type", "veth"]
        # both ends are named by processes, so nothing is made in this machine's own namespace
        command = [*pair, "peer", "name", "eth0", "netns", str(pid)]
        subprocess.run(command, check=True, env=self.machine.environment())
        self.machine.sh(
            f"""
            ip link set {cable} master nodes up
            ip route replace {configs.pod_network(number)} via {address}
            """
        )

    def disconnect(self, number: int) -> None:
        """Forget the route to a node that is gone; its cable went with it."""
        self.machine.sh(f"ip route flush {configs.pod_network(number)}")

    def cut(self, number: int) -> None:
        """Pull a node's cable: nothing gets there, and nothing from there gets here."""
        self.machine.sh(f"ip link set node{number} down")

    def mend(self, number: int) -> None:
        """Put a node's cable back."""
        self.machine.sh(f"ip link set node{number} up")

    def _issue(self) -> None:
        issue = self.authority.issue
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", "127.0.0.1"]
        issue("apiserver", "kube-apiserver", "", [*names, configs.SERVICE_ADDRESS, configs.CONTROL_ADDRESS])
        issue("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
        issue("front-proxy", "front-proxy-client")
        self.authority.signing_key("accounts")
        admin = issue("admin", "kubernetes-admin", "system:masters")
        self._session.cert = (str(admin[0]), str(admin[1]))
        self._session.verify = str(self.authority.certificate)
        kubeconfig = self.authority.kubeconfig
        kubeconfig(self.inside_kubeconfig, INSIDE, admin)
        kubeconfig(self.files / "controllers.conf", INSIDE, issue("kcm", "system:kube-controller-manager"))
        kubeconfig(self.files / "scheduler.conf", INSIDE, issue("scheduler", "system:kube-scheduler"))

    def _open(self) -> None:
        self._forward = Forward(self.machine.pid, (configs.CONTROL_ADDRESS, 443))
        self._server = f"https://127.0.0.1:{self._forward.port}"
        admin = (self.pki / "admin.crt", self.pki / "admin.key")
        self.authority.kubeconfig(self.kubeconfig, self._server, admin)

    def _ready(self) -> bool:
        try:
            return self._session.get(f"{self._server}/readyz", timeout=5).ok
        except requests.RequestException:
            return False
