"""What a card is, and what Gaia asks of whatever knows the cards (NVML, real or simulated)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gaia_plugin.gpu.topology import Topology


@dataclass(frozen=True, slots=True)
class Card:
    """One physical GPU. `uuid` is its name everywhere; `index` is only ever displayed.

    Args:
        memory_total: bytes of device memory.
        memory_reserved: bytes of it that the driver keeps; 0 where the driver does not tell.
        pci_bus_id: as NVML writes it, ``00000000:01:00.0``; empty where it does not tell.
        numa: the NUMA node it is attached to; None where that is not known.
        healthy: False for a card that must get no new slice; `trouble` says why.
    """

    uuid: str
    index: int
    name: str
    memory_total: int
    memory_reserved: int
    pci_bus_id: str
    numa: int | None
    healthy: bool = True
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """One sample of how much of a card's time a process took.

    Args:
        pid: of the process, as the host sees it.
        at: when the driver took the sample, in microseconds of its own clock; only ever compared with
            other samples of the same card.
        permille: of the card's time. Drivers tell whole percents.
    """

    pid: int
    at: int
    permille: int


@dataclass(frozen=True, slots=True)
class Xid:
    """A fault that the driver reported.

    Args:
        uuid: of the card that it befell; empty where the driver did not say.
        code: the driver's number for it.
    """

    uuid: str
    code: int


class Gpus(Protocol):
    """The cards of this machine.

    A card is asked for by its UUID. One that was never listed is refused with ``no_such_card``;
    one that fell off the bus, or whose driver gives no figure, with ``unavailable``: no figure
    is never told as 0.
    """

    def cards(self) -> tuple[Card, ...]:
        """List the cards by index, those included that were there before and are gone now."""
        ...

    def topology(self) -> Topology:
        """Tell how closely each two cards are linked."""
        ...

    def memory_used(self, uuid: str) -> int:
        """Return the bytes in use on a card, the driver's reserve not counted."""
        ...

    def processes(self, uuid: str) -> dict[int, int | None]:
        """Return bytes by host pid for each process that computes on a card.

        None stands for "the driver gives no figure", which is not a number.
        """
        ...

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        """Return the samples of a card that are younger than `since`; 0 asks for all that there are.

        A process that was idle has none, so no sample at all means an idle card, or a driver that is
        late. A card whose driver keeps no such figures (one cut by MIG) is refused.
        """
        ...
