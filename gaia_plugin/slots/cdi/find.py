"""Chooses where it is learnt from what containers get of this machine's driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gaia_plugin.slots.cdi import toolkit
from gaia_plugin.slots.cdi.driver import Driver
from gaia_plugin.slots.cdi.libraries import Libraries
from gaia_plugin.slots.cdi.simulated import Simulated, is_simulated
from gaia_plugin.slots.cdi.toolkit import Toolkit


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
