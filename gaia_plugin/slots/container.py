"""Slot directories that a container sees at /run/gaia.

On the host it is ``<state>/slots/<slot>/``, and the container cannot write in it: a runtime mounts it
read-only, and makes no mount point below it either, so all of them are here already. The usage page, which
containers do write, lies on a tmpfs of its own: ``<state>/usage/<slot>/usage``. However it is stretched, it
takes no more of the host than the size of that tmpfs.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from gaia_plugin.ledger.records import SlotRecord
from gaia_plugin.slots import limits, pages
from gaia_plugin.slots.cdi.driver import PRIVATE_NAMES, DriverEdits
from gaia_plugin.slots.cdi.model import ContainerEdits
from gaia_plugin.slots.cdi.spec import EMPTY, edits
from gaia_plugin.slots.directory import CONTEXT_BYTES, SlotDirectories
from gaia_plugin.slots.library import SHADOWS, container_version
from gaia_plugin.slots.members import ContainerMembers, Members
from gaia_plugin.slots.mounts import LinuxMounts, Mounts

_READABLE: Final = 0o644
_WRITABLE: Final = 0o666
_OPEN: Final = 0o755


class ContainerDirectories(SlotDirectories):
    """Makes, writes and removes the slot directories of containers.

    Survives the agent: what is mounted stays mounted and is found again. After a reboot the tmpfs are gone
    and `create` makes them anew.

    Args:
        state: the agent's state directory; runtimes have to see the same path, with what is mounted there.
        shadows: where the container shadow libraries were installed (`lib/container`).
        context_bytes: charged for a process's context on a card until it has been measured.
        compute_ceiling: ppm of a card's time that its elastic slots may have in all.
        members: knows the slots' processes; None: the kernel is asked, which wants ``hostPID``.
        mounts: who mounts.
    """

    directory_mode = _OPEN
    file_mode = _READABLE

    def __init__(
        self,
        state: Path,
        shadows: Path,
        *,
        context_bytes: int = CONTEXT_BYTES,
        compute_ceiling: int = limits.WHOLE_CARD,
        members: Members | None = None,
        mounts: Mounts | None = None,
    ) -> None:
        super().__init__(
            state,
            shadows,
            context_bytes=context_bytes,
            compute_ceiling=compute_ceiling,
            members=ContainerMembers(state / "slots") if members is None else members,
        )
        self.usages: Final = state / "usage"
        self._mounts = mounts or LinuxMounts()

    def usage_path(self, slot: str) -> Path:
        """Return the usage page of `slot` on the host."""
        return self.usages / self.path(slot).name / "usage"

    def edits(self, record: SlotRecord, driver: DriverEdits) -> ContainerEdits:
        """Return what the slot's container gets; `create` has made the directory before.

        Args:
            record: whose container it is.
            driver: what the driver needs for the record's cards.
        """
        directory = self.path(record.slot)
        version = container_version(self.libraries, self._shadows).name
        files: Mapping[str, Path] = {name: directory / "lib" / version / name for name in SHADOWS}
        cards: Sequence[str] = [each.card for each in record.slices]
        return edits(directory, cards, driver, files, usage=self.usage_path(record.slot))

    def renew_usage(self, slot: str) -> bool:
        """Give a slot an empty usage page, whatever its last container made of the old one.

        For a container that is about to start again, and never while it runs: it would go on writing
        into the page that is detached here, and nobody would read it. So nothing is done, and False
        returned, while a process that the page names lives.

        Raises:
            Unusable: this process may not mount.
            OSError: the page cannot be written.
        """
        with self._lock:
            if self.usage(slot).processes:
                return False
            self._mounts.detach(self.usage_path(slot).parent)
            self._make_usage(slot)
            return True

    def remove(self, slot: str) -> None:
        """Remove the directory of a slot that holds nothing; nothing happens when there is none."""
        usage = self.usage_path(slot)
        with self._lock:
            self._mounts.detach(usage.parent)
            shutil.rmtree(usage.parent, ignore_errors=True)
            super().remove(slot)

    def clear(self, known: Collection[str]) -> None:
        """Remove what a removal that failed has left, usage pages of no slot too."""
        super().clear(known)
        with self._lock:
            if not self.usages.is_dir():
                return
            for left in [each for each in self.usages.iterdir() if each.name not in known]:
                self._mounts.detach(left)
                shutil.rmtree(left)

    def _library(self, driver: Path) -> Path:
        return container_version(self.libraries, self._shadows)

    def _furnish(self, slot: str, version: Path) -> None:
        directory = self.path(slot)
        for name in ("driver", EMPTY, "lib"):
            _directory(directory / name)
        for point in ("usage", *(f"driver/{name}" for name in PRIVATE_NAMES)):
            _file(directory / point)
        self._link_libraries(directory / "lib" / version.name, version)
        self._make_usage(slot)

    def _make_usage(self, slot: str) -> None:
        """Make the page if there is none.

        One that is damaged is left alone: a container that runs has it mounted, and would not see another
        one in its place. Until it starts again its claims are unknown, and nothing is taken from it.
        """
        page = self.usage_path(slot)
        if not page.parent.is_dir():
            self.usages.mkdir(mode=self.state_mode, parents=True, exist_ok=True)
            page.parent.mkdir(mode=_OPEN, exist_ok=True)
        if not self._mounts.mounted(page.parent):
            self._mounts.tmpfs(page.parent, pages.layout()["usage.bytes"])
        if not page.exists():
            pages.create_usage(page, _WRITABLE)

    @staticmethod
    def _link_libraries(version: Path, source: Path) -> None:
        """Put a version into the slot: the same files under more names, so containers share their memory."""
        if version.exists():
            return
        aside = Path(tempfile.mkdtemp(prefix=".version-", dir=version.parent))
        for name in SHADOWS:
            os.link(source / name, aside / name)
        aside.chmod(_OPEN)
        aside.rename(version)


def _directory(path: Path) -> None:
    if _mode(path) != stat.S_IFDIR | _OPEN:  # asked first: a disk is slow to refuse what is there
        path.mkdir(exist_ok=True)
        path.chmod(_OPEN)


def _file(path: Path) -> None:
    if _mode(path) != stat.S_IFREG | _READABLE:
        path.touch(exist_ok=True)
        path.chmod(_READABLE)


def _mode(path: Path) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None
