"""The driver as NVIDIA's container toolkit describes it, in a CDI spec of its own.

Its spec knows things that we would have to guess: firmware, sockets, where the driver of this machine keeps
its libraries. So where there is one, it is taken whole, except for what would go round the shadow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi import minors
from gaia_plugin.slots.cdi.driver import (
    DriverEdits,
    both,
    covering,
    loader_directories,
    shadow_of,
    soname,
)
from gaia_plugin.slots.cdi.model import Device, Hook, Mount, Spec, merge

KIND: Final = "nvidia.com/gpu"
DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Where runtimes look by default; of two specs the one in the later directory counts."""

MARK: Final = "nvidia"
"""What the names of the toolkit's files have in them."""

_SUFFIXES: Final = (".json", ".yaml")
_COMPAT_HOOK: Final = "enable-cuda-compat"
_CACHE_HOOK: Final = "update-ldcache"
_LINK: Final = "--link"
_AGAIN: Final = "Make it again with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`."
_32_BIT: Final = ("i386", "i686", "lib32")


def find(directories: Iterable[Path] = DIRECTORIES) -> Path | None:
    """Return the file of the toolkit's spec, the one that a runtime would take; None if there is none.

    Raises:
        Unusable: a file that is named after it cannot be read.
    """
    found = None
    for directory in directories:
        try:
            entries = sorted(entry for entry in directory.iterdir() if entry.suffix in _SUFFIXES)
        except OSError:
            continue
        for entry in entries:
            if MARK in entry.name and read(entry).kind == KIND:
                found = entry
    return found


def read(path: Path) -> Spec:
    """Return the spec in a file, JSON or YAML.

    Raises:
        Unusable: it cannot be read.
    """
    try:
        octets = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(octets, type=Spec)
        return msgspec.yaml.decode(octets, type=Spec)
    except OSError as fault:
        raise Unusable(f"The CDI spec {path} cannot be read: {fault.strerror}.") from fault
    except (ValueError, msgspec.MsgspecError) as fault:
        raise Unusable(
            f"The CDI spec {path} is not one ({' '.join(str(fault).split())}). {_AGAIN}"
        ) from fault


def device(spec: Spec, card: str, minor: int | None) -> Device | None:
    """Return the device of one card: by its UUID, else the only one with its device node and no other's.

    A name that is an index counted for the cards as they were when the spec was made, so it is not believed.
    """
    if (named := next((each for each in spec.devices if each.name == card), None)) is not None:
        return named
    if minor is None:
        return None
    wanted = {f"/dev/nvidia{minor}"}
    return next((each for each in spec.devices if _card_nodes(each) == wanted), None)


def driver_edits(
    spec: Spec, cards: Sequence[str], known: Mapping[str, int], usual: Sequence[str]
) -> DriverEdits:
    """Return what a container with `cards` gets by the toolkit's spec.

    Args:
        spec: the toolkit's.
        cards: UUIDs.
        known: minor numbers by UUID, as far as they are known.
        usual: directories in which loaders look without being told.

    Raises:
        Unusable: the spec lacks a card or a library; the sentence says what to do.
    """
    parts = [spec.container_edits]
    for card in cards:
        if (found := device(spec, card, known.get(card))) is None:
            raise Unusable(f"The CDI spec of NVIDIA's toolkit does not know the card {card}. {_AGAIN}")
        parts.append(found.container_edits)
    whole = merge(parts)
    real = {mount: shadow for mount in whole.mounts if (shadow := shadow_of(_name(mount))) is not None}
    usable = {mount: shadow for mount, shadow in real.items() if not _is_32_bit(mount)}
    hosts: dict[str, str] = {}
    versions: dict[str, str] = {}
    for mount, shadow in usable.items():
        hosts.setdefault(shadow, mount.host_path)
        versions.setdefault(shadow, _version(mount, shadow))
    private = both(hosts, "The CDI spec of NVIDIA's toolkit")
    directories = [*(_directory(mount) for mount in usable), *usual]
    covered = covering(versions, directories)
    mounts = tuple(mount for mount in whole.mounts if mount not in real)
    if not any(_CACHE_HOOK in hook.args for hook in whole.hooks):
        mounts = _everywhere(mounts, {_directory(mount) for mount in usable}, usual)
    taken = {path for paths in covered.values() for path in paths}
    hooks = tuple(kept for hook in whole.hooks if (kept := _harmless(hook, taken)) is not None)
    return DriverEdits(msgspec.structs.replace(whole, mounts=mounts, hooks=hooks), private, covered)


class Toolkit:
    """The toolkit's spec in a file, read again whenever it changed.

    Args:
        path: of the spec.
        proc: where the driver tells of its cards.
        usual: directories in which loaders look without being told.
    """

    def __init__(
        self, path: Path, *, proc: Path = minors.PROC, usual: Sequence[str] = loader_directories()
    ) -> None:
        self.path: Final = path
        self._proc = proc
        self._usual = tuple(usual)
        self._read: tuple[tuple[int, int, int], Spec] | None = None

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        """Return what a container with these cards, by UUID, gets.

        Raises:
            Unusable: the spec is gone, broken, or older than the cards.
        """
        return driver_edits(self._spec(), cards, minors.by_uuid(self._proc), self._usual)

    def _spec(self) -> Spec:
        try:
            status = self.path.stat()
        except OSError as fault:
            raise Unusable(f"The CDI spec {self.path} is gone ({fault.strerror}). {_AGAIN}") from fault
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._read is None or self._read[0] != stamp:
            self._read = (stamp, read(self.path))
        return self._read[1]


def _card_nodes(device: Device) -> set[str]:
    paths = (node.path for node in device.container_edits.device_nodes)
    return {path for path in paths if path.removeprefix("/dev/nvidia").isdigit()}


def _name(mount: Mount) -> str:
    return PurePosixPath(mount.container_path).name


def _directory(mount: Mount) -> str:
    return str(PurePosixPath(mount.container_path).parent)


def _is_32_bit(mount: Mount) -> bool:
    # a 32-bit driver would have no shadow: such programs get none
    return any(mark in _directory(mount) for mark in _32_BIT)


def _version(mount: Mount, shadow: str) -> str:
    return _name(mount).partition(".so.")[2] or shadow.rpartition(".")[2]


def _everywhere(mounts: Sequence[Mount], directories: set[str], usual: Sequence[str]) -> tuple[Mount, ...]:
    """Return the mounts, and each library of the driver's directories in the usual directories as well.

    For a spec whose hook that writes the loader's cache was switched off.
    """
    made = {mount.container_path: mount for mount in mounts}
    for mount in mounts:
        name = _name(mount)
        if _directory(mount) not in directories or ".so" not in name or _is_32_bit(mount):
            continue
        for directory in usual:
            for alias in (name, soname(name)):
                path = str(PurePosixPath(directory, alias))
                made.setdefault(path, msgspec.structs.replace(mount, container_path=path))
    return tuple(made.values())


def _harmless(hook: Hook, taken: set[str]) -> Hook | None:
    """Return the hook without what would go round the shadow; None if nothing of it is left.

    The compat hook would put the image's own libcuda.so.1 in front. A link in place of a path that we
    mount over cannot be made, and the container would not start.
    """
    if _COMPAT_HOOK in hook.args:
        return None
    kept: list[str] = []
    links = 0
    words = iter(hook.args)
    for word in words:
        value = next(words, "") if word == _LINK else word.partition(f"{_LINK}=")[2]
        if not value:
            kept.append(word)
        elif value.partition("::")[2] not in taken:
            kept.extend((word, value) if word == _LINK else (word,))
            links += 1
    if "create-symlinks" in kept and not links:
        return None
    return msgspec.structs.replace(hook, args=tuple(kept))
