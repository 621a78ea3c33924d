"""Manifests of pods that need no registry: busybox, and this machine's own Python."""

import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import images

Manifest = dict[str, Any]


def busybox_pod(
    name: str,
    script: str,
    resources: Mapping[str, str | int] | None = None,
    node: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a pod that runs a shell script once; `resources` are limits of extended resources."""
    return _pod(name, _container("main", ["sh", "-c", script], resources, env), node)


def python_pod(
    name: str,
    code: str,
    resources: Mapping[str, str | int] | None = None,
    node: str | None = None,
    env: Mapping[str, str] | None = None,
    mounts: Sequence[str | Path] = (),
) -> Manifest:
    """Return a pod that runs Python code once, with the interpreter and the packages of this test run.

    The image has busybox and the C library, laid out as Debian's; Python and its virtual environment are
    the node's, read-only, as are the folders in `mounts`, each at its own path.
    """
    container = _container("main", [sys.executable, "-u", "-c", code], resources, env, images.PYTHON)
    folders = [*_python(), *(Path(folder).resolve() for folder in mounts)]
    container["volumeMounts"] = [
        {"name": "machine", "mountPath": str(path), "subPath": str(path).lstrip("/"), "readOnly": True}
        for path in folders
    ]
    pod = _pod(name, container, node)
    pod["spec"]["volumes"] = [{"name": "machine", "hostPath": {"path": "/"}}]
    return pod


def _python() -> list[Path]:
    """Return what this Python consists of: its own folder, or its program and library below /usr."""
    prefix = Path(sys.base_prefix).resolve()
    if prefix == Path("/usr"):
        base = [Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))]
    else:
        base = [prefix]
    virtual = Path(sys.prefix).resolve()
    return base if virtual in (prefix, *base) else [*base, virtual]


def _container(
    name: str,
    command: Sequence[str],
    resources: Mapping[str, str | int] | None,
    env: Mapping[str, str] | None,
    image: str = images.BUSYBOX,
) -> Manifest:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": list(command),
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": {"limits": {key: str(value) for key, value in (resources or {}).items()}},
    }


def _pod(name: str, container: Manifest, node: str | None) -> Manifest:
    spec: Manifest = {
        "containers": [container],
        "restartPolicy": "Never",
        "dnsPolicy": "Default",  # there is no name service
        "terminationGracePeriodSeconds": 1,  # 0 would take it from the API before its containers end
    }
    if node:
        # not nodeName, which would go past the scheduler
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
