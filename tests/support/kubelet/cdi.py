"""A container runtime's part: finds CDI devices by name and merges what they put into a container."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]


class CreateContainerError(Exception):
    """The runtime could not create the container."""


@dataclass(frozen=True)
class Mounted:
    source: str
    options: tuple[str, ...]

    @property
    def read_only(self) -> bool:
        return "ro" in self.options


@dataclass
class Edits:
    """All that CDI put into one container."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, Mounted] = field(default_factory=dict)
    """By path in the container."""
    device_nodes: dict[str, str] = field(default_factory=dict)
    """By path in the container: the path on the host."""
    hooks: list[dict[str, Any]] = field(default_factory=list)

    def source(self, path: str) -> Path:
        """The path on the host behind `path` in the container, through the mount nearest to it."""
        for parent in (Path(path), *Path(path).parents):
            if mount := self.mounts.get(str(parent)):
                return Path(mount.source) / Path(path).relative_to(parent)
        raise KeyError(f"nothing is mounted at {path}, only at {sorted(self.mounts)}")

    def add(self, edits: dict[str, Any]) -> None:
        for variable in edits.get("env") or ():
            name, _, value = variable.partition("=")
            self.env[name] = value
        for mount in edits.get("mounts") or ():
            self.mounts[mount["containerPath"]] = Mounted(
                mount["hostPath"], tuple(mount.get("options") or ())
            )
        for node in edits.get("deviceNodes") or ():
            self.device_nodes[node["path"]] = node.get("hostPath") or node["path"]
        self.hooks += edits.get("hooks") or ()


@dataclass
class Runtime:
    """Reads specs from `directories`, the last one winning, as containerd and CRI-O do.

    `stale`: keep what was once read until a name is not found, as a cache that missed a change does.
    """

    directories: tuple[Path, ...]
    stale: bool = False
    _known: dict[str, tuple[Path, dict[str, Any], dict[str, Any]]] = field(default_factory=dict)

    def create(self, names: Iterable[str]) -> Edits:
        """Return the edits of all `names`, or refuse in the words of containerd."""
        names = list(dict.fromkeys(names))
        if not self.stale or any(name not in self._known for name in names):
            self._known = self._read()
        missing = [name for name in names if name not in self._known]
        if missing:
            raise CreateContainerError(
                "failed to create containerd container: CDI device injection failed: "
                f"unresolvable CDI devices {', '.join(missing)}"
            )
        edits, files = Edits(), set()
        for name in names:
            path, of_spec, of_device = self._known[name]
            if path not in files:
                files.add(path)
                edits.add(of_spec)
            edits.add(of_device)
        return edits

    def _read(self) -> dict[str, tuple[Path, dict[str, Any], dict[str, Any]]]:
        known = {}
        for directory in self.directories:
            here: dict[str, tuple[Path, dict[str, Any], dict[str, Any]]] = {}
            conflicts = set()
            for path in sorted(directory.glob("*")):
                spec = _load(path)
                for device in spec.get("devices") or ():
                    name = f"{spec['kind']}={device['name']}"
                    if name in here:
                        conflicts.add(name)  # two files of one directory: neither counts
                    here[name] = (path, spec.get("containerEdits") or {}, device["containerEdits"])
            known.update({name: found for name, found in here.items() if name not in conflicts})
        return known


def _load(path: Path) -> dict[str, Any]:
    """One spec; an empty one where the runtime would drop the whole file."""
    if path.suffix not in (".json", ".yaml"):
        return {}
    try:
        text = path.read_text()
        spec: dict[str, Any] = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        valid = spec["cdiVersion"] and spec["kind"] and all(each["name"] for each in spec["devices"])
        empty = any(not any(each["containerEdits"].values()) for each in spec["devices"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return {}
    return spec if valid and not empty else {}
