"""Where the socket of this server's own slot is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

SLOT_DIRECTORY: Final = Path("/run/gaia")
"""Where a container finds its slot directory."""

NO_SLICE: Final = (
    "This server has no slice of a GPU. To get one, stop the server and start it again with a profile "
    "that has a GPU."
)


def slot_socket() -> Path | None:
    """Return the socket of the slot that this process lives in, or None where it has no slot.

    Outside a container the environment names it. In a container a slot directory without a socket
    is a slot whose agent is away, not the absence of a slot.
    """
    named = os.environ.get("GAIA_SLOT_SOCKET")
    if named:
        return Path(named)
    socket = SLOT_DIRECTORY / "agent.sock"
    return socket if socket.exists() or (SLOT_DIRECTORY / "limits").exists() else None
