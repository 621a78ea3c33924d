"""Binding a pod: its node, and the annotations of the Binding, in one write."""

from __future__ import annotations

from tests.support.kubeapi.collection import Key, Object, Objects, Refused, merge


def bind(objects: Objects, key: Key, body: Object) -> Object:
    """POST a Binding, with what it says of the pod's UID and version; return a Status."""
    asked = body.get("metadata", {})
    objects.check(key, asked.get("uid"), asked.get("resourceVersion"))
    pod = objects.get(key)
    if bound := pod["spec"].get("nodeName"):
        raise Refused(409, "Conflict", f'pod {key[2]} is already assigned to node "{bound}"')
    if pod["metadata"].get("deletionTimestamp"):
        raise Refused(409, "Conflict", f"pod {key[2]} is being deleted, cannot be assigned to a host")
    change = {
        "metadata": {"annotations": asked.get("annotations") or {}},
        "spec": {"nodeName": body["target"]["name"]},
    }
    objects.put(key[0], merge(pod, change))
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
