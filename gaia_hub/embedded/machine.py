"""What a single-machine hub stands on: a driver, simulated or real, and the agent for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gaia_hub.embedded import processes
from gaia_plugin import paths
from gaia_plugin.api.client import NodeClient
from gaia_plugin.errors import Refusal, Unusable


@dataclass(frozen=True)
class Machine:
    """A driver directory (None: the system's own), its agent's socket, and whether it is simulated."""

    driver: Path | None
    simulated: bool

    @property
    def socket(self) -> Path:
        """The operator socket of this driver's agent."""
        return paths.operator_socket(paths.state_directory(self.driver))

    def running(self) -> bool:
        """Tell whether an agent answers already."""
        try:
            NodeClient(self.socket, timeout=2.0).health()
        except Refusal:
            return False
        return True

    def start_agent(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the agent as a child that ends with this process."""
        command = [sys.executable, "-m", "gaia_plugin.cli", "agent"]
        if self.driver is not None:
            command += ["--driver", str(self.driver)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in the terminal is for `gaia demo` alone
            preexec_fn=processes.die_with_parent(),
        )


def real_cards() -> int:
    """Return how many cards NVML finds on this machine; 0 without a driver or without NVML."""
    try:
        import pynvml
    except ImportError:
        return 0
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()


def choose_machine(driver: Path | None, *, simulate: bool, cards: int | None, memory: int | None) -> Machine:
    """Return the machine to share: the named driver, the system's cards, else simulated ones.

    `cards` and `memory` (bytes per card) shape the simulated cards and ask for them.

    Raises:
        Unusable: no such driver, or simulated cards of another shape are in use.
    """
    shaped = cards is not None or memory is not None
    if driver is not None:
        if simulate or shaped:
            raise Unusable(
                "Give either --driver or simulated cards (--sim, --cards, --card-memory), not both."
            )
        return Machine(paths.check_driver(driver), simulated=False)
    if not simulate and not shaped and real_cards():
        return Machine(None, simulated=False)
    machine = Machine(paths.sim_driver(), simulated=True)
    if machine.running():
        if shaped and not _same_shape(machine, cards, memory):
            raise Unusable(
                "Simulated cards of another size are in use by a running agent. End it (`gaia slots` shows "
                "for whom it works), or leave --cards and --card-memory out."
            )
        return machine
    from gaia_plugin.sim import SimConfig, make_sim

    count, size = 2 if cards is None else cards, (24 << 30) if memory is None else memory
    make_sim(paths.sim_driver(), SimConfig(cards=count, memory=size))
    return machine


def _same_shape(machine: Machine, cards: int | None, memory: int | None) -> bool:
    found = NodeClient(machine.socket).cards()
    # Capacity is what is left after the driver's reserve, so it lies a little below the size asked for.
    near = all(memory is None or memory * 9 // 10 <= card.total.memory <= memory for card in found)
    return near and (cards is None or cards == len(found))
