"""What the components read: pure functions from facts to configuration (JSON is YAML, too)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import images

NETWORK = "10.77.0"
CONTROL_ADDRESS = f"{NETWORK}.1"
SERVICES = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"  # what pods find in KUBERNETES_SERVICE_HOST
MAX_NODES = 9


@dataclass(frozen=True)
class Options:
    """What a test may choose.

    `status_every`: how often a kubelet reports its node (allocatable follows device plugins no faster).
    `extenders`: entries of KubeSchedulerConfiguration. `kubelet`: more keys of KubeletConfiguration.
    `apiserver`: more flags of kube-apiserver.
    """

    nodes: int = 1
    status_every: str = "1s"
    extenders: Sequence[Mapping[str, Any]] = ()
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    apiserver: Sequence[str] = ()


def node_address(number: int) -> str:
    """Return node `number`'s address, from 1."""
    return f"{NETWORK}.{10 + number}"


def pod_network(number: int) -> str:
    """Return the network of the pods of a node."""
    return f"10.78.{number}.0/24"


def write(path: Path, config: Mapping[str, Any]) -> Path:
    """Write a configuration file and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1))
    return path


def etcd(directory: Path) -> dict[str, Any]:
    """Configure etcd: one member on loopback; what a power loss would take matters to nobody here."""
    clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    return {
        "name": "control",
        "data-dir": str(directory),
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"control={peers}",
        "unsafe-no-fsync": True,
        "log-level": "warn",
        "warning-unary-request-duration": 1_000_000_000,  # ns; from a file, the default is to warn of each
    }


def apiserver(pki: Path, directory: Path, more: Sequence[str]) -> list[str]:
    """Return kube-apiserver's flags."""
    flags = {
        "etcd-servers": "http://127.0.0.1:2379",
        "secure-port": 443,  # the port of the Service `kubernetes`, since there is no kube-proxy
        "bind-address": "0.0.0.0",
        "advertise-address": CONTROL_ADDRESS,
        "tls-cert-file": pki / "apiserver.crt",
        "tls-private-key-file": pki / "apiserver.key",
        "client-ca-file": pki / "ca.crt",
        "kubelet-client-certificate": pki / "apiserver-kubelet.crt",
        "kubelet-client-key": pki / "apiserver-kubelet.key",
        "kubelet-certificate-authority": pki / "ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pki / "accounts.pub",
        "service-account-signing-key-file": pki / "accounts.key",
        "service-cluster-ip-range": SERVICES,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "requestheader-client-ca-file": pki / "ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-username-headers": "X-Remote-User",
        "proxy-client-cert-file": pki / "front-proxy.crt",
        "proxy-client-key-file": pki / "front-proxy.key",
        "cert-dir": directory,
        "v": 1,
    }
    return [*_flags(flags), *more]


def controllers(pki: Path, directory: Path, kubeconfig: Path) -> list[str]:
    """Return kube-controller-manager's flags."""
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "service-account-private-key-file": pki / "accounts.key",
        "root-ca-file": pki / "ca.crt",
        "use-service-account-credentials": "true",
        "leader-elect": "false",
        "client-ca-file": pki / "ca.crt",
        "requestheader-client-ca-file": pki / "ca.crt",
        "cert-dir": directory,
        "bind-address": "127.0.0.1",
        "v": 1,
    }
    return _flags(flags)


def scheduler(kubeconfig: Path, extenders: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Configure kube-scheduler."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "extenders": [dict(extender) for extender in extenders],
    }


def scheduler_flags(config: Path, directory: Path, kubeconfig: Path) -> list[str]:
    """Return kube-scheduler's flags."""
    flags = {
        "config": config,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "cert-dir": directory,
        "bind-address": "127.0.0.1",
        "v": 2,
    }
    return _flags(flags)


def kubelet(number: int, options: Options) -> dict[str, Any]:
    """Configure a kubelet that needs neither systemd, iptables, swap accounting nor a big disk."""
    here = "/etc/kubernetes"
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node_address(number),
        "tlsCertFile": f"{here}/kubelet.crt",
        "tlsPrivateKeyFile": f"{here}/kubelet.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{here}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "resolvConf": f"{here}/resolv.conf",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "maxPods": 100,
        "maxOpenFiles": 20000,
        "nodeStatusUpdateFrequency": options.status_every,
        "shutdownGracePeriod": "0s",
    }
    return config | dict(options.kubelet)


def kubelet_flags(name: str, number: int) -> list[str]:
    """Return the kubelet's flags."""
    flags = {
        "config": "/etc/kubernetes/kubelet.yaml",
        "kubeconfig": "/etc/kubernetes/kubelet.conf",
        "hostname-override": name,
        "node-ip": node_address(number),
        "cert-dir": "/var/lib/kubelet/pki",
        "v": 2,
    }
    return _flags(flags)


def containerd(programs: Path, runc: str) -> str:
    """Configure containerd where it looks by itself: CDI on, as it is by default in 2.x."""
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{images.PAUSE}"

[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  disable_apparmor = true
  # the kubelet asks for a negative score, and without CAP_SYS_RESOURCE a container with one does not start
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{programs}"]
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        SystemdCgroup = false
"""


def cni(number: int) -> dict[str, Any]:
    """Configure the pods' network of a node: a bridge, no address translation."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": pod_network(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def _flags(values: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
