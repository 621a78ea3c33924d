"""The driver as it lies in a directory, for machines without NVIDIA's container toolkit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi import minors
from gaia_plugin.slots.cdi.driver import (
    CUDA,
    NVML,
    READ_ONLY,
    DriverEdits,
    both,
    covering,
    host_path,
    loader_directories,
    shadow_of,
    soname,
    stem,
)
from gaia_plugin.slots.cdi.model import ContainerEdits, DeviceNode, Mount

COMPUTING: Final = frozenset(
    f"lib{each}"
    for each in (
        "cudadebugger",
        "nvidia-cfg",
        "nvidia-gpucomp",
        "nvidia-nvvm",
        "nvidia-nvvm70",
        "nvidia-opencl",
        "nvidia-pkcs11",
        "nvidia-pkcs11-openssl3",
        "nvidia-ptxjitcompiler",
        "nvidia-sandboxutils",
        "nvidia-tileiras",
    )
)
"""What of the driver a program that computes may load besides the two."""

PROGRAMS: Final = ("nvidia-smi", "nvidia-debugdump")
_TAILS: Final = (
    ("usr", "lib", "x86_64-linux-gnu"),
    ("usr", "lib", "aarch64-linux-gnu"),
    ("usr", "lib", "x86_64-linux-gnu", "nvidia", "current"),
    ("usr", "lib", "aarch64-linux-gnu", "nvidia", "current"),
    ("usr", "lib64"),
    ("usr", "lib"),
)
_NEEDED: Final = ("nvidiactl", "nvidia-uvm")
_OPTIONAL: Final = ("nvidia-uvm-tools",)


def driver_edits(
    found: Mapping[str, str], programs: Mapping[str, str], nodes: Sequence[str], usual: Sequence[str]
) -> DriverEdits:
    """Return what a container gets of a driver that was found by its files.

    No hook writes the loader's cache, so every library lies under each of its names in each directory in
    which some loader looks.

    Args:
        found: host path by file name, of all libraries.
        programs: host path by file name.
        nodes: paths of device nodes, the same on both sides.
        usual: directories in which loaders look without being told.

    Raises:
        Unusable: one of the two libraries with a shadow is missing.
    """
    real: dict[str, str] = {}
    mounts: list[Mount] = []
    # what libcuda.so.1 leads to is the driver in use; files of others may lie beside it
    for name, host in sorted(found.items(), key=lambda each: each[0] not in (CUDA, NVML)):
        if (shadow := shadow_of(name)) is not None:
            real.setdefault(shadow, host)
            continue
        for alias in (name, soname(name)):
            mounts += [Mount(host, str(PurePosixPath(each, alias)), READ_ONLY) for each in usual]
    versions = {shadow: PurePosixPath(host).name.partition(".so.")[2] or "1" for shadow, host in real.items()}
    private = both(real, "The driver's directory")
    mounts += [Mount(host, f"/usr/bin/{name}", READ_ONLY) for name, host in programs.items()]
    edits = ContainerEdits(
        device_nodes=tuple(DeviceNode(node) for node in nodes),
        mounts=tuple({mount.container_path: mount for mount in mounts}.values()),
    )
    return DriverEdits(edits, private, covering(versions, usual))


def node_paths(present: frozenset[str], cards: Sequence[str], known: Mapping[str, int]) -> tuple[str, ...]:
    """Return the device nodes that a container with `cards` needs.

    Args:
        present: names below /dev.
        cards: UUIDs.
        known: minor numbers by UUID.

    Raises:
        Unusable: a node is missing, or the driver does not tell which belongs to a card.
    """
    wanted = []
    for card in cards:
        if card not in known:
            raise Unusable(
                f"The driver does not tell the device node of {card} in {minors.PROC}. Install NVIDIA's "
                "container toolkit and run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`."
            )
        wanted.append(f"nvidia{known[card]}")
    if missing := [name for name in (*wanted, *_NEEDED) if name not in present]:
        raise Unusable(
            f"There is no /dev/{missing[0]}. `nvidia-modprobe -c 0 -u` makes the driver's device nodes."
        )
    optional = (name for name in _OPTIONAL if name in present)
    return tuple(f"/dev/{name}" for name in (*dict.fromkeys(wanted), *_NEEDED, *optional))


class Libraries:
    """A driver in a directory.

    Args:
        directory: with the driver's libraries, as this process sees it.
        root: where this process sees the node's root.
        proc: where the driver tells of its cards.
        usual: directories in which loaders look without being told.
    """

    def __init__(
        self,
        directory: Path,
        *,
        root: Path = Path("/"),
        proc: Path = minors.PROC,
        usual: Sequence[str] = loader_directories(),
    ) -> None:
        self._directory = directory
        self._root = root
        self._proc = proc
        self._usual = tuple(usual)

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        """Return what a container with these cards, by UUID, gets.

        Raises:
            Unusable: libraries or device nodes are missing.
        """
        try:
            names = sorted(entry.name for entry in self._directory.iterdir())
            present = frozenset(entry.name for entry in (self._root / "dev").iterdir())
        except OSError as fault:
            raise Unusable(f"The driver cannot be looked at: {fault}.") from fault
        found = {name: self._real(self._directory / name) for name in names if _wanted(name)}
        programs = {name: _installation(self._directory) / "usr/bin" / name for name in PROGRAMS}
        there = {name: self._real(path) for name, path in programs.items() if path.exists()}
        nodes = node_paths(present, cards, minors.by_uuid(self._proc))
        return driver_edits(found, there, nodes, self._usual)

    def _real(self, path: Path) -> str:
        """Return the node's path of the file behind a link, which stays within the driver's root."""
        real = Path(os.path.realpath(path))
        installation = _installation(self._directory)
        if not real.is_relative_to(installation):
            real = installation / real.relative_to("/")
        return host_path(real, self._root)


def _installation(directory: Path) -> Path:
    """Return the root that a driver was installed below: ``/``, or that of a driver container."""
    for tail in _TAILS:
        if directory.parts[-len(tail) :] == tail:
            return Path(*directory.parts[: -len(tail)])
    return Path("/")


def _wanted(name: str) -> bool:
    if shadow_of(name) is not None:
        return True
    # "libnvidia-ptxjitcompiler.so" alone is for linking, "….so.580.95.05" and "….so.1" for running
    return stem(name) in COMPUTING and name.partition(".so.")[2][:1].isdigit()
