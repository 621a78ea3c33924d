"""The simulated driver in containers: the same cards, and the same shared state, at other paths."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from gaia_plugin.errors import Unusable
from gaia_plugin.sim.make import CONFIGURATION
from gaia_plugin.sim.probe import state_file
from gaia_plugin.slots.cdi.driver import (
    CUDA,
    NVML,
    PRIVATE,
    DriverEdits,
    Private,
    covering,
    host_path,
    loader_directories,
)
from gaia_plugin.slots.cdi.model import ContainerEdits

VERSION: Final = "580.95.05"
"""What the simulated driver says it is where its configuration names no ``driver``."""


def is_simulated(directory: Path) -> bool:
    """Tell whether a driver's directory is that of a simulated one."""
    return (directory / CONFIGURATION).is_file()


def values_of(text: str, key: str) -> list[str]:
    """Return the values that a ``sim.conf`` gives to a key, in their order."""
    lines = (line.partition("#")[0].partition("=") for line in text.splitlines())
    return [value.strip() for name, _, value in lines if name.strip() == key]


def inside(text: str, cards: Sequence[str]) -> str:
    """Return the ``sim.conf`` for containers, from that of the machine.

    Cards and state would follow the libraries' directory, which is another one there, so both are named.

    Args:
        text: of the machine's.
        cards: UUIDs of all its cards, in the order of their indices.
    """
    own = {f"card.{index}.uuid" for index in range(len(cards))} | {"state", "shared"}
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in own]
    named = [f"card.{index}.uuid = {card}" for index, card in enumerate(cards)]
    return "\n".join([*kept, *named, f"state = {PRIVATE}/state", "shared = 1"]) + "\n"


def _kept_state(directory: Path) -> Path:
    return state_file(directory, keep=True)


class Simulated:
    """The simulated driver in `directory`.

    Args:
        directory: as `gaia_plugin.sim.make_sim` made it.
        cards: UUIDs of all its cards, in the order of their indices.
        configuration: where the ``sim.conf`` for containers is written.
        root: where this process sees the node's root.
        state: asks for the path of the shared state, and sees to it that the file is there to be mounted.
        usual: directories in which loaders look without being told.
    """

    def __init__(
        self,
        directory: Path,
        cards: Sequence[str],
        configuration: Path,
        *,
        root: Path = Path("/"),
        state: Callable[[Path], Path] = _kept_state,
        usual: Sequence[str] = loader_directories(),
    ) -> None:
        self._directory = directory
        self._cards = tuple(cards)
        self._configuration = configuration
        self._root = root
        self._usual = tuple(usual)
        self._text = _text(directory / CONFIGURATION)
        self._state = state(directory)
        if self._state.exists():
            self._state.chmod(0o666)  # programs in containers run as any user
        _write(configuration, inside(self._text, self._cards))

    def edits(self, cards: Sequence[str]) -> DriverEdits:
        """Return what a container with these cards, by UUID, gets.

        Raises:
            Unusable: the driver has other cards.
        """
        if unknown := [card for card in cards if card not in self._cards]:
            raise Unusable(f"The simulated driver in {self._directory} has no card {unknown[0]}.")
        version = (values_of(self._text, "driver") or [VERSION])[-1]
        private = (
            Private(CUDA, host_path(self._directory / CUDA, self._root)),
            Private(NVML, host_path(self._directory / NVML, self._root)),
            Private("sim.conf", host_path(self._configuration, self._root)),
            Private("state", host_path(self._state, self._root), writable=True),
        )
        covered = covering({CUDA: version, NVML: version}, self._usual)
        return DriverEdits(ContainerEdits(), private, covered)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as fault:
        raise Unusable(f"The simulated driver's {path} cannot be read: {fault}.") from fault


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    os.replace(aside, path)
