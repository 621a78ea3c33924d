"""Spec files in the directory that the container runtime watches."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from gaia_plugin.slots.cdi.model import ContainerEdits, Spec, check_kind, check_name
from gaia_plugin.slots.cdi.spec import KIND, owner_key, spec

_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Written:
    """A spec that is there. `owner` is the UID of the pod it was made for; empty when it is damaged."""

    name: str
    owner: str


class SpecFiles:
    """The specs of one kind.

    Args:
        directory: of CDI specs, made if it is missing; usually /var/run/cdi.
        kind: of all our devices.
    """

    def __init__(self, directory: Path, kind: str = KIND) -> None:
        self.directory: Final = directory
        self.kind: Final = check_kind(kind)
        self._prefix: Final = f"{kind.replace('/', '-')}_"

    def write(self, name: str, edits: ContainerEdits, owner: str) -> Path:
        """Put `edits` behind the device `name`, in place of what was behind it; return the file.

        A reader sees the old file, or the new one whole.

        Args:
            name: of the device, without the kind.
            edits: at least one.
            owner: UID of the pod.

        Raises:
            ValueError: no edits, or a name that CDI does not allow.
            OSError: the directory cannot be written.
        """
        octets = msgspec.json.format(msgspec.json.encode(spec(name, edits, owner, kind=self.kind)))
        if not self.directory.is_dir():
            self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path, aside = self._path(name), self._aside(name)
        try:
            with aside.open("wb") as file:
                os.fchmod(file.fileno(), _MODE)
                file.write(octets)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        return path

    def remove(self, name: str) -> None:
        """Take the device `name` away; nothing happens when it is not there.

        Raises:
            ValueError: CDI does not allow the name.
            OSError: the directory cannot be written.
        """
        for path in (self._path(name), self._aside(name)):
            path.unlink(missing_ok=True)

    def listed(self) -> tuple[Written, ...]:
        """Return our specs by name; of those of others nothing is told."""
        try:
            names = sorted(entry.name for entry in self.directory.iterdir())
        except FileNotFoundError:
            return ()
        ours = (name for name in names if name.startswith(self._prefix) and name.endswith(".json"))
        return tuple(
            Written(name.removeprefix(self._prefix).removesuffix(".json"), self._owner(self.directory / name))
            for name in ours
        )

    def read(self, name: str) -> Spec | None:
        """Return the spec of `name`; None if there is none or it is damaged.

        Raises:
            ValueError: CDI does not allow the name.
        """
        return _decoded(self._path(name))

    def owner(self, name: str) -> str:
        """Return the UID that the spec of `name` was made for; empty if there is none or it is damaged.

        Raises:
            ValueError: CDI does not allow the name.
        """
        return self._owner(self._path(name))

    def tidy(self) -> None:
        """Remove what a killed agent left half written."""
        for left in self.directory.glob(f".{self._prefix}*.new"):
            left.unlink(missing_ok=True)

    def _owner(self, path: Path) -> str:
        found = _decoded(path)
        return "" if found is None else found.annotations.get(owner_key(self.kind), "")

    def _path(self, name: str) -> Path:
        return self.directory / f"{self._prefix}{check_name(name)}.json"

    def _aside(self, name: str) -> Path:
        # runtimes read .json and .yaml only
        return self.directory / f".{self._prefix}{check_name(name)}.new"


def _decoded(path: Path) -> Spec | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Spec)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None
