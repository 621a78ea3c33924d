"""The kubelet's record of devices, read no more often than it changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from gaia_plugin.agent.pods.identity import Entry
from gaia_plugin.deviceplugin import checkpoint, sockets

_Version = tuple[int, int, int, int]


class KubeletCheckpoint:
    """Implements `gaia_plugin.agent.pods.ports.Checkpoint`.

    Args:
        kubelet: the kubelet's directory.
    """

    def __init__(self, kubelet: Path) -> None:
        self._kubelet = kubelet
        self._path = sockets.plugin_directory(kubelet) / checkpoint.NAME
        self._lock = asyncio.Lock()
        self._known: tuple[_Version, Sequence[Entry]] | None = None

    async def entries(self) -> Sequence[Entry]:
        """Return what it says now; a file that is as it was is not read again.

        Raises:
            Refusal: it cannot be read or understood.
        """
        async with self._lock:
            # looked at before it is read: what is read is this version or a newer one
            version = self._version()
            if self._known is not None and version is not None and self._known[0] == version:
                return self._known[1]
            found: Sequence[Entry] = await asyncio.to_thread(checkpoint.entries, self._kubelet)
            self._known = None if version is None else (version, found)
            return found

    def _version(self) -> _Version | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
