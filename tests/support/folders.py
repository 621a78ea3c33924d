"""Mounts where nobody is root."""

from __future__ import annotations

from pathlib import Path


class Folders:
    """Stands in for mounts where nobody is root: a tmpfs is the folder itself."""

    def __init__(self) -> None:
        self.there: set[Path] = set()

    def tmpfs(self, path: Path, size: int) -> None:
        self.there.add(path)

    def mounted(self, path: Path) -> bool:
        return path in self.there

    def detach(self, path: Path) -> None:
        if path in self.there:
            self.there.discard(path)
            for each in path.iterdir():
                each.unlink()
