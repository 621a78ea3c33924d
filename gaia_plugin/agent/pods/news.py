"""What people are told on a pod when the size of its slot has changed, and who asked for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Final

from gaia_plugin.agent.pods.ports import Server
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.units import MEMORY_UNIT, format_cores, format_memory

USER: Final = "its user"
ON_NODE: Final = "an operator of this node"
ANNOTATION: Final = "an operator's annotation"

asked_by: ContextVar[str] = ContextVar("asked_by", default=USER)
"""Who asks for what is being done: one of the above."""


def sentence(before: SlotRecord, after: SlotRecord, who: str) -> str:
    """Return what a change of size is told by."""
    told = (
        f"Container {after.name}: {_amounts(before.target)} became {_amounts(after.target)}, as {who} asked."
    )
    if after.draining:
        told += " What is above that and in use goes back to the others when it is freed."
    return told


def _amounts(share: Share) -> str:
    return f"{format_memory(share.units * MEMORY_UNIT)} and {format_cores(share.cores)}"


class News:
    """Puts events on pods, one after the other; nobody waits for them.

    Changes of a slot that follow each other faster than the API server takes them are told as one.

    Args:
        sight: the pods.
        server: the API server.
    """

    def __init__(self, sight: Sight, server: Server) -> None:
        self._sight = sight
        self._server = server
        self._pending: dict[str, tuple[SlotRecord, SlotRecord, str]] = {}
        self._telling: asyncio.Task[None] | None = None

    def resized(self, before: SlotRecord, after: SlotRecord) -> None:
        """Tell of a change that is in force."""
        earlier = self._pending.get(after.slot)
        first = before if earlier is None else earlier[0]
        self._pending[after.slot] = (first, after, asked_by.get())
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        while self._pending:
            slot = next(iter(self._pending))
            before, after, who = self._pending.pop(slot)
            pod = self._sight.pod(after.owner)
            if pod is not None:
                await self._server.tell(
                    pod, "Resized", sentence(before, after, who), kind="Normal", action="Resize"
                )

    async def close(self) -> None:
        """Leave what is not told yet untold."""
        self._pending.clear()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
