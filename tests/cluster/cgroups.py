"""A cgroup of its own for each machine of a test cluster, under cgroup v1 (also hybrid) and v2.

A machine's processes are moved there before its cgroup namespace is made, so that inside the machine it is
the root, and all that the kubelet makes lies below it: two kubelets do not meet, limits of the caller hold,
and one tree is removed at the end.
"""

import contextlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.cluster.polling import until

V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")


@dataclass(frozen=True)
class Mount:
    """One mounted hierarchy: `controllers` as mount(8) names them, empty for v2."""

    point: Path
    root: str
    controllers: tuple[str, ...]


def mounts(mountinfo: str) -> list[Mount]:
    """Parse /proc/self/mountinfo; return v1's hierarchies, or the one of v2 where v1 holds no memory."""
    first: list[Mount] = []
    second: list[Mount] = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, point = before.split()[3:5]
        if kind == "cgroup":
            first.append(Mount(Path(point), root, tuple(filter(_is_controller, options.split(",")))))
        elif kind == "cgroup2":
            second.append(Mount(Path(point), root, ()))
    unified = not any("memory" in mount.controllers for mount in first)
    return second[:1] if unified else first


def _is_controller(option: str) -> bool:
    flags = {"rw", "ro", "none", "clone_children", "xattr", "noprefix", "cpuset_v2_mode"}
    return option not in flags and not option.startswith("release_agent=")


def own_paths(cgroup: str) -> dict[str, str]:
    """Parse /proc/self/cgroup: the path for each set of controllers ("" for v2)."""
    lines = [line.split(":", 2) for line in cgroup.splitlines()]
    return {controllers: path for _, controllers, path in lines}


class Cgroup:
    """The cgroups called `name` in every hierarchy."""

    def __init__(self, name: str):
        found = mounts(Path("/proc/self/mountinfo").read_text())
        own = own_paths(Path("/proc/self/cgroup").read_text())
        self.v1 = [",".join(mount.controllers) for mount in found if mount.controllers]
        self.folders = [_parent(mount, own) / name for mount in found]

    def make(self) -> None:
        """Make the folders and open them to processes and limits."""
        for folder in self.folders:
            if not self.v1:
                _delegate(folder.parent)
            folder.mkdir(exist_ok=True)
            # v1: a new cpuset is empty, and takes no process before it has processors and memory nodes
            for file in ("cpuset.cpus", "cpuset.mems"):
                if self.v1 and (folder / file).exists():
                    (folder / file).write_text((folder.parent / file).read_text())

    def settle(self) -> None:
        """Under v2, move the processes into a leaf: a cgroup with processes takes no limits for children."""
        if self.v1:
            return
        (folder,) = self.folders
        (folder / "system").mkdir(exist_ok=True)
        for pid in (folder / "cgroup.procs").read_text().split():
            (folder / "system/cgroup.procs").write_text(pid)
        _delegate(folder)

    @property
    def entrances(self) -> list[Path]:
        """Return the files into which a process writes itself to belong to this machine."""
        if self.v1:
            return [folder / "cgroup.procs" for folder in self.folders]
        leaf = self.folders[0] / "system"
        return [(leaf if leaf.is_dir() else self.folders[0]) / "cgroup.procs"]

    def processes(self) -> set[int]:
        """Return the host pids of all processes in here and below."""
        found: set[int] = set()
        for folder in self.folders:
            for below, _, _ in os.walk(folder):
                with contextlib.suppress(OSError):
                    found |= {int(pid) for pid in Path(below, "cgroup.procs").read_text().split()}
        return found

    def remove(self) -> None:
        """Remove all of it; waits for processes that are still ending."""
        for folder in self.folders:
            until(f"cgroup {folder} is empty", partial(_removed, folder), 30)


def _parent(mount: Mount, own: dict[str, str]) -> Path:
    """Return the caller's own cgroup in v1; in v2 the top, for no cgroup that holds processes has limits."""
    if not mount.controllers:
        return mount.point
    path = own.get(",".join(mount.controllers), "/")
    return mount.point / os.path.relpath(path, mount.root) if path.startswith(mount.root) else mount.point


def _delegate(folder: Path) -> None:
    here = (folder / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in V2_CONTROLLERS if name in here]
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(wanted))
    except OSError as refused:
        raise RuntimeError(
            f"{folder} does not let cgroups below it have limits ({refused.strerror}): it is not the top "
            f"one, and holds processes. Run on the machine itself, or move them into a cgroup below."
        ) from refused


def _removed(folder: Path) -> bool:
    for below, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(below)
    return not folder.exists()
