"""Who serves a state directory, as its agent has noted there, and whether that is a node of a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from gaia_plugin import paths
from gaia_plugin.errors import Unusable

NOTE: Final = "agent.json"


def noted(state: Path) -> dict[str, Any]:
    """Return what the last agent of a state directory has noted of itself; {} where there is nothing."""
    try:
        read = json.loads((state / NOTE).read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def node_state() -> Path | None:
    """Return the state directory in which an agent shares this machine's cards among pods; None: nowhere."""
    return next((each for each in paths.state_directories() if noted(each).get("kubernetes") is True), None)


def refuse_on_node() -> None:
    """Refuse what would start an agent besides that of a node.

    The node's agent need not answer: its pods keep their slices while it is away.

    Raises:
        Unusable: this machine is a node.
    """
    if (state := node_state()) is None:
        return
    raise Unusable(
        f"This machine is a node of a cluster: the agent in {state} shares its cards among pods, and a "
        "second one would give the same memory away again. Ask for a slice with a pod (resources "
        f"gaia.io/vgpu-memory and gaia.io/vgpu-cores). If it is no node any more, remove {state}."
    )
