"""What of a driver a container gets, and the one place that chooses where that is learnt from."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from gaia_plugin.errors import Unusable
from gaia_plugin.paths import CONTAINER_SLOT
from gaia_plugin.slots.cdi.model import ContainerEdits, Mount

CUDA: Final = "libcuda.so.1"
NVML: Final = "libnvidia-ml.so.1"
PRIVATE: Final = str(CONTAINER_SLOT / "driver")
"""Where the shadows find what they stand in front of; the path is compiled into them."""
PRIVATE_NAMES: Final = (CUDA, NVML, "sim.conf", "state")
"""All that may appear there: mount points for them have to exist, the slot being read-only inside."""

READ_ONLY: Final = ("ro", "nosuid", "nodev", "bind", "rprivate")
WRITABLE: Final = ("rw", "nosuid", "nodev", "noexec", "bind", "rprivate")

_MULTIARCH: Final = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_STEMS: Final = {CUDA: "libcuda.so", NVML: "libnvidia-ml.so"}
_SONAMES: Final = {"libnvidia-nvvm": "libnvidia-nvvm.so.4", "libnvidia-nvvm70": "libnvidia-nvvm70.so.4"}
"""Those of the driver's libraries that do not end in ``.so.1``."""


@dataclass(frozen=True, slots=True)
class Private:
    """A file of the host that appears as `name` in `PRIVATE`."""

    name: str
    host: str
    writable: bool = False

    def mount(self) -> Mount:
        """Return the mount that makes it appear."""
        return Mount(self.host, f"{PRIVATE}/{self.name}", WRITABLE if self.writable else READ_ONLY)


@dataclass(frozen=True, slots=True)
class DriverEdits:
    """What a container gets of the driver, for the cards of one slot.

    Args:
        edits: everything but the two libraries that stand behind a shadow.
        private: those two, and what else only the shadows' driver needs.
        covered: paths in the container that a shadow lies over, by the shadow's name.
    """

    edits: ContainerEdits
    private: tuple[Private, ...]
    covered: Mapping[str, tuple[str, ...]]


class Driver(Protocol):
    """Knows what containers need of this machine's driver."""

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        """Return what a container with these cards, by UUID, gets.

        Raises:
            Unusable: something is missing on the machine; the sentence says what to do.
        """
        ...


def loader_directories(machine: str = platform.machine()) -> tuple[str, ...]:
    """Return where the loaders of Debian's and of Red Hat's family look without being told.

    There is no directory that both search, so whatever has to be found is mounted in both.
    """
    multiarch = _MULTIARCH.get(machine)
    return (*([f"/usr/lib/{multiarch}"] if multiarch else []), "/usr/lib64")


def shadow_of(name: str) -> str | None:
    """Return the shadow that belongs over a library of that file name; None for all others."""
    for shadow, base in _STEMS.items():
        if name == base or (name.startswith(f"{base}.") and name[len(base) + 1 :][:1].isdigit()):
            return shadow
    return None


def stem(name: str) -> str:
    """Return a library's file name without ``.so`` and version."""
    return name.partition(".so")[0]


def soname(name: str) -> str:
    """Return the name that programs ask for a library of the driver by, from its file name."""
    return _SONAMES.get(stem(name), f"{stem(name)}.so.1")


def names_of(shadow: str, version: str) -> tuple[str, ...]:
    """Return the names that programs ask for a library by: ``.so.1``, ``.so.<version>`` and ``.so``."""
    base = _STEMS[shadow]
    return tuple(dict.fromkeys((shadow, f"{base}.{version}", base)))


def covering(versions: Mapping[str, str], directories: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths to cover: each name of each shadow in each directory.

    Args:
        versions: what follows ``.so.`` in the file name of the real library, by shadow.
        directories: in the container; one that is named twice counts once.
    """
    return {
        shadow: tuple(
            str(PurePosixPath(directory, name))
            for directory in dict.fromkeys(directories)
            for name in names_of(shadow, version)
        )
        for shadow, version in versions.items()
    }


def host_path(path: Path, root: Path) -> str:
    """Return how the node calls a path that this process sees; `root` is where it sees the node's root."""
    return str(Path("/", path.relative_to(root)) if path.is_relative_to(root) else path)


def both(found: Mapping[str, str], where: object) -> tuple[Private, Private]:
    """Return the two real libraries, from their host paths by shadow.

    Raises:
        Unusable: one is missing; `where` is named as the place that lacks it.
    """
    if missing := [name for name in (CUDA, NVML) if name not in found]:
        raise Unusable(f"{where} has no {' and no '.join(missing)}: no container can be given this driver.")
    return Private(CUDA, found[CUDA]), Private(NVML, found[NVML])
