"""Mounting a small tmpfs, through mount(2): the one thing here that needs root."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from pathlib import Path
from typing import Final, Protocol

from gaia_plugin.errors import Unusable

_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_DETACH, _NOFOLLOW = 2, 8
_INODES: Final = 4
"""Of a tmpfs: its root, the file, and what the file is made from."""


class Mounts(Protocol):
    """Who mounts."""

    def tmpfs(self, path: Path, size: int) -> None:
        """Mount a tmpfs of `size` bytes on the directory `path`.

        Raises:
            Unusable: this process may not.
        """
        ...

    def mounted(self, path: Path) -> bool:
        """Tell whether something is mounted on the directory `path`."""
        ...

    def detach(self, path: Path) -> None:
        """Unmount what is mounted on `path`; whoever still uses it keeps it. Nothing mounted: nothing."""
        ...


class LinuxMounts:
    """The kernel. Implements `Mounts`."""

    def tmpfs(self, path: Path, size: int) -> None:
        """Mount a tmpfs; its files may be neither programs nor devices."""
        page = os.sysconf("SC_PAGE_SIZE")
        options = f"size={-(-size // page) * page},nr_inodes={_INODES},mode=0755"
        result = _libc().mount(
            b"gaia", os.fsencode(path), b"tmpfs", _NOSUID | _NODEV | _NOEXEC, options.encode()
        )
        if result == 0:
            return
        fault = ctypes.get_errno()
        if fault in (errno.EPERM, errno.EACCES):
            raise Unusable(
                f"The usage page of a container cannot be mounted at {path}: the agent may not mount. Run it "
                "as root with CAP_SYS_ADMIN, in a pod with `privileged: true`."
            )
        raise OSError(fault, os.strerror(fault), str(path))

    def mounted(self, path: Path) -> bool:
        """Tell whether the directory is a mount point."""
        return os.path.ismount(path)

    def detach(self, path: Path) -> None:
        """Unmount lazily, all that was mounted there one over the other."""
        while os.path.ismount(path):
            if _libc().umount2(os.fsencode(path), _DETACH | _NOFOLLOW) != 0:
                fault = ctypes.get_errno()
                raise OSError(fault, os.strerror(fault), str(path))


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    text, number = ctypes.c_char_p, ctypes.c_ulong
    libc.mount.argtypes = [text, text, text, number, text]
    libc.umount2.argtypes = [text, ctypes.c_int]
    return libc
