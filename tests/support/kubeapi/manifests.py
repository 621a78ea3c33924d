"""Pods as the API server would show them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any


def pod_manifest(
    name: str,
    *,
    namespace: str = "default",
    node: str | None = "node1",
    limits: Mapping[str, str] | None = None,
    container: str = "main",
    annotations: Mapping[str, str] | None = None,
    init: Sequence[Mapping[str, Any]] = (),
    phase: str = "Pending",
    uid: str | None = None,
    restart_policy: str = "Always",
) -> dict[str, Any]:
    """Return a pod with one container that has these limits, and fields that Gaia knows nothing of."""
    resources = {"limits": {"cpu": "1", **(limits or {})}, "requests": {"cpu": "1", **(limits or {})}}
    spec: dict[str, Any] = {
        "containers": [
            {"name": container, "image": "busybox", "resources": resources, "env": [{"name": "A"}]}
        ],
        "restartPolicy": restart_policy,
        "tolerations": [{"operator": "Exists"}],
    }
    if init:
        spec["initContainers"] = [dict(each) for each in init]
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or str(uuid.uuid4()),
            "labels": {"app": "x"},
            "annotations": {"other.io/note": "x" * 50, **(annotations or {})},
            "managedFields": [{"manager": "test", "fieldsV1": {"f:spec": {"f:containers": {}}}}],
        },
        "spec": spec,
        "status": {"phase": phase, "qosClass": "Burstable"},
    }


def status_of(container: str = "main", **state: Any) -> dict[str, Any]:
    """Return a container's status, such as ``status_of(running={})``."""
    return {
        "name": container,
        "containerID": f"containerd://{'0' * 60}{len(container):04d}",
        "image": "busybox",
        "started": "running" in state,
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }
