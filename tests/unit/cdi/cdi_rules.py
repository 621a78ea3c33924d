"""CDI's rules for a spec file, as strictly as its reference library reads one."""

from __future__ import annotations

import re
from typing import Any

import jsonschema

PATH = {"type": "string", "pattern": "^/"}
TEXTS = {"type": "array", "items": {"type": "string"}}
ENV = {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}}
NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
HOOKS = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,  # unknown fields make a runtime drop the whole file
    }


NODE = _object(
    ["path"],
    path=PATH,
    hostPath=PATH,
    type={"enum": ["b", "c", "u", "p"]},
    major=NUMBER,
    minor=NUMBER,
    fileMode=NUMBER,
    permissions={"type": "string", "pattern": "^[rwm]+$"},
    uid=NUMBER,
    gid=NUMBER,
)
MOUNT = _object(
    ["hostPath", "containerPath"], hostPath=PATH, containerPath=PATH, options=TEXTS, type={"type": "string"}
)
HOOK = _object(["hookName", "path"], hookName={"enum": HOOKS}, path=PATH, args=TEXTS, env=ENV, timeout=NUMBER)
EDITS = _object(
    [],
    env=ENV,
    deviceNodes={"type": "array", "items": NODE},
    mounts={"type": "array", "items": MOUNT},
    hooks={"type": "array", "items": HOOK},
    additionalGids={"type": "array", "items": NUMBER},
)
NOTES = {"type": "object", "additionalProperties": {"type": "string"}}
NAME = {"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"}
SCHEMA = _object(
    ["cdiVersion", "kind", "devices"],
    cdiVersion={"enum": ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0"]},
    kind={"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*$"},
    annotations=NOTES,
    devices={
        "type": "array",
        "minItems": 1,
        "items": _object(
            ["name", "containerEdits"],
            name=NAME,
            containerEdits=EDITS | {"minProperties": 1},
            annotations=NOTES,
        ),
    },
    containerEdits=EDITS,
)


def check(spec: dict[str, Any]) -> None:
    """Fail where a runtime would drop the file."""
    jsonschema.validate(spec, SCHEMA)
    for device in spec["devices"]:
        assert any(device["containerEdits"].values()), "a device without edits"
    assert needed(spec) <= _numbers(spec["cdiVersion"]), "the version is older than the fields"


def needed(spec: dict[str, Any]) -> tuple[int, ...]:
    """Return the version in which the newest of the fields came."""
    edits = [spec.get("containerEdits", {}), *(device["containerEdits"] for device in spec["devices"])]
    rules = {
        (0, 7, 0): any(part.get("additionalGids") for part in edits),
        (0, 6, 0): bool(spec.get("annotations")) or any(each.get("annotations") for each in spec["devices"]),
        (0, 5, 0): any(not re.match("[A-Za-z]", each["name"]) for each in spec["devices"])
        or any("hostPath" in node for part in edits for node in part.get("deviceNodes", ())),
        (0, 4, 0): any("type" in mount for part in edits for mount in part.get("mounts", ())),
    }
    return max([version for version, used in rules.items() if used], default=(0, 3, 0))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
