"""A plugin pair with a small handler, against the simulated kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path

from gaia_plugin.deviceplugin import (
    Device,
    Plugin,
    Quiet,
    core_ids,
    entries,
    keep_registered,
    memory_ids,
)
from gaia_plugin.errors import Code, Refusal
from tests.support.kubelet import SimulatedKubelet, until

MEMORY, CORES = "gaia.io/vgpu-memory", "gaia.io/vgpu-cores"
UNITS, ALL_CORES = 64, 200


@dataclass
class SmallHandler:
    """Answers with a name that never recurs; at PreStart the checkpoint says whose name it is."""

    kubelet: Path
    cdi: Path
    refusal: str = ""
    fault: Exception | None = None
    allocated: list[tuple[str, frozenset[str], str]] = field(default_factory=list)
    prestarted: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    _nonces: Iterator[int] = field(default_factory=count)

    def allocate(self, resource: str, ids: frozenset[str]) -> str:
        if self.fault is not None:
            raise self.fault
        hashed = sha256(f"{resource} {sorted(ids)}".encode()).hexdigest()[:16]
        name = f"gaia.io/slot={hashed}-{next(self._nonces):016x}"
        self.allocated.append((resource, ids, name))
        return name

    async def prestart(self, resource: str, ids: frozenset[str]) -> None:
        self.prestarted.append((resource, ids))
        if self.fault is not None:
            raise self.fault
        if self.refusal:
            raise Refusal(Code.CARD_FULL, self.refusal)
        for entry in entries(self.kubelet):
            if (entry.resource, entry.ids) == (resource, ids):
                for name in entry.cdi_names:
                    variable = "GAIA_" + resource.rpartition("-")[2].upper()
                    self._write(name, f"{variable}={entry.uid}/{entry.container}/{len(ids)}")

    def _write(self, qualified: str, variable: str) -> None:
        kind, _, name = qualified.partition("=")
        device = {"name": name, "containerEdits": {"env": [variable]}}
        temporary = self.cdi / f"{name}.tmp"
        temporary.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": [device]}))
        os.replace(temporary, self.cdi / f"{name}.json")


class Agent:
    """Both plugins, kept registered; a restart makes them anew with what a new process would know."""

    def __init__(self, kubelet: Path, handler: SmallHandler) -> None:
        self._kubelet = kubelet
        self.handler = handler
        self.plugins: dict[str, Plugin] = {}
        self.quiet = Quiet()
        self._task: asyncio.Task[None] | None = None

    def start(self, *, lists: bool = True) -> None:
        self.plugins = {
            resource: Plugin(resource, self._kubelet, self.handler, self.quiet)
            for resource in (MEMORY, CORES)
        }
        if lists:
            self.plugins[MEMORY].update([Device(each) for each in memory_ids(UNITS)])
            self.plugins[CORES].update([Device(each) for each in core_ids(ALL_CORES)])
        self._task = asyncio.create_task(
            keep_registered(tuple(self.plugins.values()), self._kubelet, poll=0.05)
        )

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def restart(self) -> None:
        await self.stop()
        self.start()


async def settled(kubelet: SimulatedKubelet, agent: Agent) -> None:
    """Wait until this kubelet, since its last start, reads the lists of this agent, since its last start."""
    await until(
        lambda: all(
            plugin.unwatched == 0 and kubelet.is_registered(resource)
            for resource, plugin in agent.plugins.items()
        )
    )
