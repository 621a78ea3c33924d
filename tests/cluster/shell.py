"""`make cluster`: a shell beside a running cluster, which ends with it."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.build import Missing
from tests.cluster.cluster import Cluster
from tests.cluster.configs import Options

WELCOME = """
Kubernetes runs until you leave this shell.
  kubectl get pods -A            as administrator
  enter node1 COMMAND...         a program on a node: its files, network and processes
  image for pods                 localhost/busybox:1 with imagePullPolicy: Never
  logs of all components         {logs}
"""


def main(nodes: int = 1) -> int:
    """Start a cluster, run a shell, end both."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    start = time.monotonic()
    try:
        cluster = Cluster(Options(nodes=nodes))
    except Missing as missing:
        print(f"make cluster: {missing}", file=sys.stderr)
        return 1
    with cluster:
        print(f"ready after {time.monotonic() - start:.0f} s{WELCOME.format(logs=cluster.log_directory)}")
        commands = cluster.directory / "bin"
        commands.mkdir()
        _write_enter(commands / "enter", cluster)
        environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{cluster.tools.path}",
            "KUBECONFIG": str(cluster.kubeconfig),
        }
        subprocess.run([os.environ.get("SHELL", "/bin/bash")], env=environment)
        print("ending the cluster")
    return 0


def _write_enter(target: Path, cluster: Cluster) -> None:
    lines = ["#!/bin/sh", "node=$1", "shift", "case $node in"]
    for node in cluster.nodes:
        lines.append(f'{node.name}) exec {shlex.join(node.machine.command([]))} "$@" ;;')
    lines += ['*) echo "no node is called $node" >&2; exit 2 ;;', "esac", ""]
    target.write_text("\n".join(lines))
    target.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
