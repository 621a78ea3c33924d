"""What `gaia demo` hands to the hub that it starts: one file, readable by its owner alone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "GAIA_HUB_SETTINGS"
"""Names the file to `config.py`."""


@dataclass(frozen=True)
class HubSettings:
    """Settings of one run. `directory` holds database, cookie secret, homes and logs."""

    directory: str
    port: int
    hub_port: int
    password: str
    agent_socket: str

    def write(self) -> Path:
        """Write the file (0600, whole or not at all) and return its path."""
        path = Path(self.directory) / "settings.json"
        unfinished = path.with_suffix(".new")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self), file)
        unfinished.rename(path)
        return path

    @classmethod
    def read(cls, path: Path) -> HubSettings:
        """Return what `write` wrote."""
        return cls(**json.loads(path.read_text()))
