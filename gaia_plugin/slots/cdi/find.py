"""Chooses where it is learnt from what containers get of this machine's driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi import toolkit
from gaia_plugin.slots.cdi.driver import Driver, DriverEdits
from gaia_plugin.slots.cdi.libraries import Libraries
from gaia_plugin.slots.cdi.simulated import Simulated, is_simulated
from gaia_plugin.slots.cdi.toolkit import Toolkit

log = structlog.get_logger(__name__)


class LatestDriver:
    """What containers need, learnt anew when a spec of NVIDIA's toolkit appears or goes: late in a boot, say.

    Implements `Driver`. A spec that cannot be used changes nothing.

    Args:
        look: finds it, as `find_driver` does.
        directories: of CDI specs, as this process sees them.

    Raises:
        Unusable: there is none that can be used.
    """

    def __init__(self, look: Callable[[], Driver], directories: Sequence[Path]) -> None:
        self._look = look
        self._directories = tuple(directories)
        self._seen = self._specs()
        self._driver = look()

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        """Return what a container with these cards, by UUID, gets.

        Raises:
            Unusable: something is missing on the machine.
        """
        seen = self._specs()
        if seen != self._seen:
            try:
                self._driver = self._look()
                log.info("the driver is looked for anew", found=type(self._driver).__name__)
            except Unusable as error:
                log.warning("the driver stays as it was", why=str(error))
            self._seen = seen
        return self._driver.edits(cards)

    def _specs(self) -> frozenset[tuple[str, int, int]]:
        """Return the files that may be the toolkit's, and what tells them from those before."""
        found = set()
        for directory in self._directories:
            with suppress(OSError):
                for entry in os.scandir(directory):
                    if toolkit.MARK in entry.name:
                        status = entry.stat()
                        found.add((entry.path, status.st_ino, status.st_mtime_ns))
        return frozenset(found)


def find_driver(
    directory: Path,
    cards: Sequence[str],
    state: Path,
    *,
    root: Path = Path("/"),
    specs: Sequence[Path] = toolkit.DIRECTORIES,
) -> Driver:
    """Return who knows what containers need: the simulation, NVIDIA's toolkit, or the files themselves.

    Args:
        directory: of the driver's libraries.
        cards: UUIDs of all cards, in the order of their indices.
        state: the agent's state directory.
        root: where this process sees the node's root.
        specs: directories of CDI specs, as the node calls them.

    Raises:
        Unusable: a spec or a simulation that is there cannot be used.
    """
    if is_simulated(directory):
        return Simulated(directory, cards, state / "driver" / "sim.conf", root=root)
    if (spec := toolkit.find([root / each.relative_to("/") for each in specs])) is not None:
        return Toolkit(spec)
    return Libraries(directory, root=root)
