"""What a container runtime does with CDI devices, by hand: for tests in a mount namespace of their own.

Names are resolved in a directory of specs, all edits are merged, mounts are sorted by depth, each mount point
is looked up within the container's root and made where that root can be written, and a read-only bind mount
is a bind mount and a remount.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "remount": 32, "bind": 4096, "rbind": 4096 | 16384}
PROPAGATION = {"rprivate": 262144 | 16384, "private": 262144}
HARMLESS = {"rw"}
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: Path | str, target: Path, kind: str = "none", flags: int = 0, options: str = "") -> None:
    """Call mount(2)."""
    arguments = (
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    if _libc.mount(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


def resolve(specs: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the merged edits behind qualified names, as a runtime with this directory would."""
    known = {}
    for path in sorted(specs.glob("*.json")):
        spec = json.loads(path.read_text())
        for device in spec["devices"]:
            known[f"{spec['kind']}={device['name']}"] = device["containerEdits"]
    merged: dict[str, list[Any]] = {"env": [], "mounts": []}
    for name in names:
        for key, values in known[name].items():
            merged[key] += values
    by_path = {each["containerPath"]: each for each in merged["mounts"]}
    merged["mounts"] = sorted(by_path.values(), key=lambda each: each["containerPath"].count("/"))
    return merged


def within(root: Path, path: str) -> Path:
    """Return where a path of the container lies, its links followed within the root."""
    done = root
    rest = [part for part in path.split("/") if part]
    for _ in range(1000):
        if not rest:
            return done
        step = done / rest.pop(0)
        if not step.is_symlink():
            done = step
            continue
        target = os.readlink(step)
        if target.startswith("/"):
            done = root
        rest = [part for part in target.split("/") if part and part != "."] + rest
        while rest and rest[0] == "..":
            done, rest = (done if done == root else done.parent), rest[1:]
    raise OSError(f"too many links in {path}")


@dataclass
class Container:
    """A root in which programs run with the edits of some devices."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def apply(self, edits: dict[str, list[Any]]) -> None:
        """Make the mounts and take the environment over."""
        self.environment.update(each.split("=", 1) for each in edits["env"])
        for each in edits["mounts"]:
            self._mount(Path(each["hostPath"]), each["containerPath"], each["options"])

    def _mount(self, source: Path, path: str, options: list[str]) -> None:
        target = within(self.root, path)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()  # fails where the root below is read-only, as in runc
        flags = sum({FLAGS[each] for each in options if each in FLAGS})
        unknown = set(options) - set(FLAGS) - set(PROPAGATION) - HARMLESS
        assert not unknown, f"no option of mount: {unknown}"
        mount(source, target, flags=FLAGS["bind"])
        for each in options:
            if each in PROPAGATION:
                mount("none", target, flags=PROPAGATION[each])
        mount("none", target, flags=flags | FLAGS["remount"])

    def run(self, *words: str, uid: int = 0, **environment: str) -> list[str]:
        """Run a program in the container to its end; the lines it says."""
        with self.start(*words, uid=uid, **environment) as process:
            output, errors = process.communicate(timeout=30)
        assert process.returncode == 0, f"{words}: {process.returncode} {output} {errors}"
        return output.splitlines()

    def start(self, *words: str, uid: int = 0, **environment: str) -> subprocess.Popen[str]:
        """Start a program in the container."""

        def enter() -> None:
            os.chroot(self.root)
            os.chdir("/")
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)

        return subprocess.Popen(
            list(words),
            preexec_fn=enter,
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def make_root(root: Path, shape: str, program: Path) -> Container:
    """Make the root of an image whose libraries lie as in Debian's or in Red Hat's family.

    Both have this machine's C library. In the Red Hat one it lies in /usr/lib64, and its loader searches
    the directories of that family: its list of directories is text of fixed places in the file. Each
    brings a driver of its own that does not work, as images do: one baked in, one for CUDA's forward
    compatibility behind a link.
    """
    for each in ("usr/bin", "proc", "run", "tmp", "usr/local", "etc"):
        (root / each).mkdir(parents=True)
    debian = shape == "debian"
    libraries = root / ("usr/lib/x86_64-linux-gnu" if debian else "usr/lib64")
    libraries.mkdir(parents=True)
    (root / "usr/lib64").mkdir(exist_ok=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "lib64").symlink_to("usr/lib64")
    (root / "usr/lib").mkdir(exist_ok=True)
    for each in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"):
        shutil.copy(Path("/lib/x86_64-linux-gnu", each), libraries / each)
    octets = Path("/lib64/ld-linux-x86-64.so.2").read_bytes()
    if not debian:
        for old, new in (
            (b"/usr/lib/x86_64-linux-gnu/", b"/usr/lib64"),
            (b"/lib/x86_64-linux-gnu/", b"/lib64"),
        ):
            assert old + b"\0" in octets
            octets = octets.replace(b"\0" + old + b"\0", b"\0" + new.ljust(len(old), b"/") + b"\0")
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    loader.write_bytes(octets)
    loader.chmod(0o755)
    (libraries / "libcuda.so.1").symlink_to("libcuda.so.520.61.05")
    (root / "usr/local/cuda").symlink_to("/usr/local/cuda-13.0")
    (root / "usr/local/cuda-13.0/compat").mkdir(parents=True)
    for each in (libraries / "libcuda.so.520.61.05", root / "usr/local/cuda-13.0/compat/libcuda.so.1"):
        each.write_text("of the image, and not a library")
    shutil.copy(program, root / "usr/bin/probe")
    mount("/proc", root / "proc", flags=FLAGS["rbind"])
    return Container(root)
