"""The part of the Container Device Interface that we read and write, with its names and its rules.

The field names become CDI's camel case in JSON. Fields that we have no use for are dropped when a spec of
somebody else is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_KIND: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


class DeviceNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device file; `host_path` where it is called otherwise on the host."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A bind mount; both paths are absolute."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A program that the runtime calls; `args` begins with its own name, `timeout` is in seconds."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class ContainerEdits(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a runtime changes in a container before it makes it."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether they change anything."""
        return bool(self.env or self.device_nodes or self.mounts or self.hooks or self.additional_gids)


class Device(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One name that a container can be given."""

    name: str
    container_edits: ContainerEdits = ContainerEdits()
    annotations: Mapping[str, str] = {}


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One file. `container_edits` come on top of those of whichever of its devices is asked for."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...] = ()
    container_edits: ContainerEdits = ContainerEdits()
    annotations: Mapping[str, str] = {}

    def edits(self) -> Iterator[ContainerEdits]:
        """Yield those of the file, then those of each device."""
        yield self.container_edits
        for device in self.devices:
            yield device.container_edits


def merge(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """Return edits that do what all `parts` do, each thing once and in their order.

    As in a runtime, of two mounts on one path or two nodes of one path the later one counts.
    """
    env: dict[str, None] = {}
    nodes: dict[str, DeviceNode] = {}
    mounts: dict[str, Mount] = {}
    hooks: dict[Hook, None] = {}
    gids: dict[int, None] = {}
    for part in parts:
        env.update(dict.fromkeys(part.env))
        nodes.update({node.path: node for node in part.device_nodes})
        mounts.update({mount.container_path: mount for mount in part.mounts})
        hooks.update(dict.fromkeys(part.hooks))
        gids.update(dict.fromkeys(part.additional_gids))
    return ContainerEdits(
        tuple(env), tuple(nodes.values()), tuple(mounts.values()), tuple(hooks), tuple(gids)
    )


def lowest_version(spec: Spec) -> str:
    """Return the lowest CDI version that has what `spec` uses.

    A runtime refuses a file whose version is newer than it knows, and one whose version is older than the
    fields in it; so the lowest that is right is read by the most runtimes.
    """
    everything = tuple(spec.edits())
    if any(part.additional_gids for part in everything):
        return "0.7.0"
    if spec.annotations or any(device.annotations for device in spec.devices) or "." in _class(spec.kind):
        return "0.6.0"
    if any(not device.name[:1].isalpha() for device in spec.devices):
        return "0.5.0"
    if any(node.host_path for part in everything for node in part.device_nodes):
        return "0.5.0"
    if any(mount.type for part in everything for mount in part.mounts):
        return "0.4.0"
    return "0.3.0"


def check_name(name: str) -> str:
    """Return `name` if CDI allows it for a device.

    Raises:
        ValueError: it does not.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a CDI device: letters, digits and _-.: between them")
    return name


def check_kind(kind: str) -> str:
    """Return `kind` if it is a vendor and a class, as ``gaia.io/slot``.

    Raises:
        ValueError: it is not.
    """
    if not _KIND.fullmatch(kind):
        raise ValueError(f"{kind!r} is no CDI kind: it has the form vendor/class")
    return kind


def _class(kind: str) -> str:
    return kind.partition("/")[2]
