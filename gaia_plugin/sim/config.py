"""What a simulated machine is made of, and its text form, ``sim.conf``.

The keys are described in ``libvgpu/sim/config.h``, which reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from gaia_plugin.errors import Unusable
from gaia_plugin.units import GIB, MIB

MOST_CARDS: Final = 16
MOST_LINKS: Final = 18


class Level(StrEnum):
    """Where two cards meet on the PCI tree, as NVML names it."""

    SINGLE = "single"
    MULTIPLE = "multiple"
    HOSTBRIDGE = "hostbridge"
    NODE = "node"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Link:
    """What ties two cards, by index.

    Args:
        nvlinks: how many NVLinks join them.
        level: where they meet on the PCI tree; None follows from their PCIe switches and NUMA nodes.
        p2p: whether they reach each other's memory.
    """

    a: int
    b: int
    nvlinks: int = 0
    level: Level | None = None
    p2p: bool = True


@dataclass(frozen=True, slots=True)
class CardConfig:
    """Where one card differs from the others. None means as they are.

    Args:
        pcie_switch: cards with the same number hang on one PCIe switch.
        speed: CUDA's default order is fastest first; equal ones keep NVML's order.
    """

    name: str | None = None
    memory: int | None = None
    reserved: int | None = None
    context: int | None = None
    compute: tuple[int, int] | None = None
    numa: int | None = None
    pcie_switch: int | None = None
    speed: int | None = None
    uuid: str | None = None
    multiprocessors: int | None = None
    blocks_per_multiprocessor: int | None = None


@dataclass(frozen=True, slots=True)
class SimConfig:
    """A simulated machine. Sizes are bytes, times nanoseconds.

    Args:
        cards: how many, up to 16.
        memory: of each board; `reserved` of it is the driver's, the rest can be allocated.
        context: what each process takes on a card for its first context there.
        each: differences of single cards, by index.
        links: what ties pairs of cards.
        nvswitch: NVLinks of every card to a switch that joins all.
        multiprocessors: of each card; each runs `blocks_per_multiprocessor` blocks at once.
        kernel_ns: modelled time of a launch; `block_ns` that of a block, so that a launch takes
            `kernel_ns` and `block_ns` for each wave of blocks that all multiprocessors hold together.
            A kernel whose name is ``gaia_spin_N`` takes N nanoseconds, whatever its grid.
        alternate_ms: how long a card stays with one process while others have work as well, as real
            cards do without MPS; 0 serves all processes in the order of submission.
        sample_delay_ms: how late NVML shows its samples of utilisation.
        backed: whether device memory is real host memory (taken when it is touched).
        state: the file that all processes share; None for one in /dev/shm named after the directory.
    """

    cards: int = 2
    memory: int = 24 * GIB
    reserved: int = 512 * MIB
    context: int = 300 * MIB
    name: str = "Gaia Simulated 24GB"
    compute: tuple[int, int] = (8, 9)
    each: Mapping[int, CardConfig] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    nvswitch: int = 0
    multiprocessors: int = 132
    blocks_per_multiprocessor: int = 8
    kernel_ns: int = 0
    block_ns: int = 0
    alternate_ms: int = 0
    sample_delay_ms: int = 0
    backed: bool = True
    state: Path | None = None

    def text(self) -> str:
        """Return the text of ``sim.conf``.

        Raises:
            Unusable: a value cannot be simulated; the sentence names it.
        """
        self._check()
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield "# Written by Gaia: the cards of a simulated machine. libvgpu/sim/config.h explains the keys."
        yield f"cards = {self.cards}"
        yield f"name = {self.name}"
        yield f"memory = {self.memory}"
        yield f"reserved = {self.reserved}"
        yield f"context = {self.context}"
        yield f"compute = {self.compute[0]}.{self.compute[1]}"
        yield f"multiprocessors = {self.multiprocessors}"
        yield f"blocks_per_multiprocessor = {self.blocks_per_multiprocessor}"
        for index, card in sorted(self.each.items()):
            yield from _card_lines(f"card.{index}.", card)
        for link in self.links:
            if link.nvlinks:
                yield f"link = {link.a} {link.b} {link.nvlinks}"
            if link.level is not None:
                yield f"level = {link.a} {link.b} {link.level}"
            if not link.p2p:
                yield f"p2p = {link.a} {link.b} off"
        if self.nvswitch:
            yield f"nvswitch = {self.nvswitch}"
        yield f"kernel_ns = {self.kernel_ns}"
        yield f"block_ns = {self.block_ns}"
        yield f"alternate_ms = {self.alternate_ms}"
        yield f"sample_delay_ms = {self.sample_delay_ms}"
        yield f"backed = {int(self.backed)}"
        if self.state is not None:
            yield f"state = {self.state.absolute()}"

    def _check(self) -> None:
        if not 1 <= self.cards <= MOST_CARDS:
            raise Unusable(f"{self.cards} cards cannot be simulated; from 1 to {MOST_CARDS} can.")
        if self.memory <= self.reserved:
            raise Unusable(
                f"A simulated card of {self.memory} bytes has nothing left beside the driver's reserve of "
                f"{self.reserved}; give it more."
            )
        for text in (self.name, *(card.name or "card" for card in self.each.values())):
            if not text.strip() or len(text.encode()) > 63 or not text.isprintable() or "#" in text:
                raise Unusable(f"{text!r} is no name for a simulated card: use 1 to 63 plain characters.")
        for link in self.links:
            if link.a == link.b or not (0 <= link.a < self.cards and 0 <= link.b < self.cards):
                raise Unusable(
                    f"A link joins two of the cards 0 to {self.cards - 1}, not {link.a} and {link.b}."
                )
            if not 0 <= link.nvlinks <= MOST_LINKS:
                raise Unusable(f"Two cards cannot have {link.nvlinks} NVLinks; at most {MOST_LINKS}.")
        if wrong := [index for index in self.each if not 0 <= index < self.cards]:
            raise Unusable(f"There is no card {wrong[0]}: the cards are 0 to {self.cards - 1}.")


def _card_lines(prefix: str, card: CardConfig) -> Iterator[str]:
    values = {
        "name": card.name,
        "memory": card.memory,
        "reserved": card.reserved,
        "context": card.context,
        "compute": None if card.compute is None else f"{card.compute[0]}.{card.compute[1]}",
        "numa": card.numa,
        "switch": card.pcie_switch,
        "speed": card.speed,
        "uuid": card.uuid,
        "multiprocessors": card.multiprocessors,
        "blocks_per_multiprocessor": card.blocks_per_multiprocessor,
    }
    for key, value in values.items():
        if value is not None:
            yield f"{prefix}{key} = {value}"
