"""What a node's agent stands on in its pod: the node's process ids, and mounts that the node sees.

Without them nothing fails: the agent would believe that nobody uses anything, and containers would get pages
that nobody writes. So both are looked at before it serves.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from pathlib import Path
from typing import Final

from gaia_plugin.api import sockets
from gaia_plugin.deviceplugin.sockets import registration_socket
from gaia_plugin.errors import Unusable

_CREDENTIALS: Final = struct.Struct("iII")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_PATIENCE: Final = 2.0


def kubelet_pid(kubelet: Path) -> int | None:
    """Return the kubelet's pid as this process knows it; 0 where it does not, None where it is not there.

    The kernel tells it of the other end of a connection, and says 0 for a process outside of this one's pid
    namespace. That holds also on nodes that are containers themselves, and whatever the kubelet's program is
    called.
    """
    try:
        with sockets.connect(registration_socket(kubelet), _PATIENCE) as connection:
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    pid, _, _ = _CREDENTIALS.unpack(told)
    return int(pid)


def check_pids(kubelet: Path) -> bool:
    """Refuse a pid namespace other than the kubelet's; return whether the kubelet was there to compare with.

    Raises:
        Unusable: it is another one.
    """
    pid = kubelet_pid(kubelet)
    if pid == 0:
        raise Unusable(
            "The agent does not see the node's processes, so it could not tell who uses a card: set "
            "hostPID: true in the spec of its pod."
        )
    return pid is not None


def check_mounts(state: Path, table: str) -> None:
    """Refuse a state directory whose mounts the node does not see.

    Args:
        state: the state directory.
        table: this process's ``/proc/self/mountinfo``.

    Raises:
        Unusable: what is mounted below it stays in the agent's pod.
    """
    if not spreads(Path(os.path.realpath(state)), table):
        raise Unusable(
            f"What the agent mounts below {state} stays in its pod, so containers would get usage pages that "
            f"nobody reads: mount the node's {state} at the same path with mountPropagation: Bidirectional."
        )


def spreads(directory: Path, table: str) -> bool:
    """Tell whether a mount made in a directory appears in other mount namespaces, by a ``mountinfo``."""
    best, shared = -1, False
    for line in table.splitlines():
        fields = line.split()
        point = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        # of several on the same point the last one is on top
        if directory.is_relative_to(point) and len(point.parts) >= best:
            options = fields[6 : fields.index("-", 6)]
            best, shared = len(point.parts), any(each.startswith("shared:") for each in options)
    return shared
