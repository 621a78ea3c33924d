"""Objects with versions and a history: what the HTTP side answers from. Locked by its owner."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Collection (such as ``v1/pods``), namespace, name."""


class Refused(Exception):
    """An answer of kind Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message

    @property
    def status(self) -> Object:
        """Return the body."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


def expired(version: int, oldest: int) -> Refused:
    """Return the answer to a version that is forgotten."""
    return Refused(410, "Expired", f"too old resource version: {version} ({oldest})")


@dataclass(frozen=True)
class Entry:
    """One change: the object after it and before it; `gone` is what a deletion shows."""

    version: int
    key: Key
    after: Object | None
    before: Object | None
    gone: Object | None = None


@dataclass
class Objects:
    """All objects of all collections, on one counter of versions as in etcd."""

    version: int = 100
    oldest: int = 0
    current: dict[Key, Object] = field(default_factory=dict)
    history: list[Entry] = field(default_factory=list)

    def put(self, collection: str, item: Object) -> Object:
        """Create or replace an object; it gets the next version."""
        metadata = item["metadata"]
        key = (collection, metadata.get("namespace", ""), metadata["name"])
        self.version += 1
        item = copy.deepcopy(item)
        item["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Entry(self.version, key, item, self.current.get(key)))
        self.current[key] = item
        return copy.deepcopy(item)

    def remove(self, key: Key) -> Object:
        """Delete an object for good."""
        before = self.get(key)
        self.version += 1
        gone = copy.deepcopy(before)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.history.append(Entry(self.version, key, None, before, gone))
        del self.current[key]
        return gone

    def get(self, key: Key) -> Object:
        """Return an object or refuse with 404."""
        if key not in self.current:
            raise Refused(404, "NotFound", f'{key[0].split("/")[-1]} "{key[2]}" not found')
        return self.current[key]

    def patch(self, key: Key, change: Object) -> Object:
        """Apply a JSON merge patch with its preconditions."""
        before = self.get(key)
        asked = change.get("metadata", {})
        self.check(key, asked.get("uid"), asked.get("resourceVersion"))
        after = merge(before, change)
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        return copy.deepcopy(before) if after == before else self.put(key[0], after)

    def check(self, key: Key, uid: str | None, version: str | None) -> None:
        """Refuse with 409 if the object is not the one that was meant."""
        metadata = self.get(key)["metadata"]
        if uid is not None and uid != metadata["uid"]:
            raise Refused(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on pods "{key[2]}": Precondition failed: UID in '
                f"precondition: {uid}, UID in object meta: {metadata['uid']}",
            )
        if version is not None and version != metadata["resourceVersion"]:
            raise Refused(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on pods "{key[2]}": the object has been modified; please '
                "apply your changes to the latest version and try again",
            )

    def listed(
        self, collection: str, namespace: str | None, selector: str, limit: int, token: str | None
    ) -> Object:
        """Return one page of a list; all pages show the moment of the first."""
        moment, after = self.version, ("", "")
        if token:
            moment, *rest = json.loads(base64.b64decode(token))
            after = (rest[0], rest[1])
            if moment < self.oldest:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
        items = sorted(
            (
                (key, item)
                for key, item in self._at(moment).items()
                if key[0] == collection and namespace in (None, key[1]) and selected(item, selector)
            ),
            key=lambda pair: pair[0],
        )
        items = [pair for pair in items if pair[0][1:] > after]
        metadata: Object = {"resourceVersion": str(moment)}
        if limit and len(items) > limit:
            last = items[limit - 1][0]
            metadata["continue"] = base64.b64encode(json.dumps([moment, *last[1:]]).encode()).decode()
            metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        return {
            "kind": "List",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": [item for _, item in items],
        }

    def _at(self, moment: int) -> dict[Key, Object]:
        then = dict(self.current)
        for entry in reversed(self.history):
            if entry.version <= moment:
                break
            if entry.before is None:
                then.pop(entry.key, None)
            else:
                then[entry.key] = entry.before
        return then

    def events(
        self, collection: str, namespace: str | None, selector: str, since: int
    ) -> Iterator[tuple[int, Object]]:
        """Yield what happened after a version, as a watch with this selector shows it."""
        for entry in self.history:
            if entry.version <= since or entry.key[0] != collection:
                continue
            if namespace not in (None, entry.key[1]):
                continue
            was = entry.before is not None and selected(entry.before, selector)
            now = entry.after is not None and selected(entry.after, selector)
            if now:
                yield entry.version, {"type": "MODIFIED" if was else "ADDED", "object": entry.after}
            elif was:
                yield entry.version, {"type": "DELETED", "object": entry.gone or entry.after}


def selected(item: Object, selector: str) -> bool:
    """Tell whether an object is one of those that a field selector names."""
    for part in filter(None, selector.split(",")):
        path, _, wanted = part.partition("=")
        value: Any = item
        for step in path.split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        if value != wanted.lstrip("="):
            return False
    return True


def merge(target: Any, change: Any) -> Any:
    """Return `target` after a JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result
