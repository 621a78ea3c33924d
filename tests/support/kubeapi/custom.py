"""Custom resources: cluster-scoped, with a status that is written apart from the rest."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from gaia_plugin.kube import crd
from tests.support.kubeapi.collection import Key, Object, Objects, Refused, merge

GPUNODES = "gaia.io/v1alpha1/gpunodes"
CUSTOM = frozenset({GPUNODES})
"""Collections that there are only while their definition is."""


def create(objects: Objects, key: Key, body: Object) -> Object:
    """Create an object; a status in it counts for nothing."""
    made = _checked(key[2], {name: part for name, part in body.items() if name != "status"})
    made["metadata"] |= {
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": "2026-11-29T12:00:00Z",
    }
    return objects.put(key[0], made)


def replace(objects: Objects, key: Key, body: Object, *, status: bool) -> Object:
    """PUT an object or its status; the part that is not meant stays as it is."""
    metadata = body.get("metadata", {})
    if not metadata.get("resourceVersion"):
        raise Refused(422, "Invalid", "metadata.resourceVersion: Invalid value: 0x0: must be specified")
    return _write(objects, key, metadata, body, status=status)


def patch(objects: Objects, key: Key, change: Object, *, status: bool) -> Object:
    """Apply a merge patch to an object or its status."""
    return _write(objects, key, change.get("metadata", {}), merge(objects.get(key), change), status=status)


def _write(objects: Objects, key: Key, asked: Object, wanted: Object, *, status: bool) -> Object:
    objects.check(key, asked.get("uid"), asked.get("resourceVersion"))
    before = objects.get(key)
    after: dict[str, Any] = copy.deepcopy(before if status else wanted)
    theirs = wanted if status else before
    after.pop("status", None)
    if "status" in theirs:
        after["status"] = copy.deepcopy(theirs["status"])
    after = _checked(key[2], after)
    for fixed in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        if fixed in before["metadata"]:
            after["metadata"][fixed] = before["metadata"][fixed]
    if after == before:
        return copy.deepcopy(before)  # as etcd: what changes nothing keeps its version
    if after.get("spec") != before.get("spec"):
        after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
    return objects.put(key[0], after)


def _checked(name: str, item: Object) -> Object:
    """Return an object without what its schema does not know; refuse it as the API server would."""
    kept: Object = _pruned(item, _schema()) | {"metadata": copy.deepcopy(item["metadata"])}
    wrong = [
        f"{error.json_path.removeprefix('$.')}: {error.message}"
        for error in Draft202012Validator(_schema()).iter_errors(kept)
    ]
    wrong += _twice(kept, _schema(), "")
    if wrong:
        raise Refused(422, "Invalid", f'GPUNode.gaia.io "{name}" is invalid: {", ".join(wrong)}')
    return kept


@cache
def _schema() -> Object:
    return crd.schema()


def _pruned(value: Any, schema: Object) -> Any:
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return {key: _pruned(part, known[key]) for key, part in value.items() if key in known}
    if isinstance(value, list):
        return [_pruned(part, schema.get("items", {})) for part in value]
    return copy.deepcopy(value)


def _twice(value: Any, schema: Object, where: str) -> Iterator[str]:
    """Yield the items of lists that have another one's key."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _twice(part, schema.get("properties", {}).get(key, {}), f"{where}.{key}")
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        seen = set()
        for at, part in enumerate(value):
            yield from _twice(part, schema.get("items", {}), f"{where}[{at}]")
            found = tuple(part[key] for key in keys)
            if keys and found in seen:
                yield f"{where.removeprefix('.')}[{at}]: Duplicate value: {found}"
            seen.add(found)
