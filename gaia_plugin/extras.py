"""Which packages the node part needs; the bare wheel comes without them."""

from __future__ import annotations

import importlib.util
from typing import Final

NODE_PARTS: Final = frozenset({"anyio", "h11", "pynvml", "starlette", "structlog", "uvicorn"})
"""Modules of the extra `node` that the agent imports."""

CLUSTER_PARTS: Final = frozenset({"aiohttp", "kubernetes", "numpy"})
"""Modules of it that only asking a cluster needs."""


def require_node() -> None:
    """Make sure that an agent could run in this environment.

    Raises:
        ModuleNotFoundError: with the name of the first module that is missing.
    """
    for name in sorted(NODE_PARTS):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
