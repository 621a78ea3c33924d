"""Cards to place on: 24 GiB with 512 MiB kept by the driver, unless said otherwise."""

from __future__ import annotations

from gaia_plugin.gpu import Level, Tie, Topology
from gaia_plugin.placement import CardState, Request, place
from gaia_plugin.shares import Share

WHOLE = Share(94, 100)
A100 = "NVIDIA A100-SXM4-40GB"
T4 = "Tesla T4"


def card(
    uuid: str,
    free: tuple[int, int] | None = None,
    *,
    capacity: tuple[int, int] = (94, 100),
    model: str = A100,
    healthy: bool = True,
) -> CardState:
    """Return a card with (units, cores) free; all of it, if that is not said."""
    return CardState(uuid, model, Share(*capacity), Share(*(free or capacity)), healthy)


def chosen(request: Request, cards: list[CardState], topology: Topology | None = None) -> str:
    """Return the UUIDs that a request is placed on, joined."""
    return "".join(one.card for one in place(request, cards, topology))


def quads() -> Topology:
    """Return two NVLink quads, abcd and efgh, with one link between each two of their cards."""
    return Topology.of(
        (x, y, Tie(Level.NVLINK, 1)) for quad in ("abcd", "efgh") for x in quad for y in quad if x < y
    )


def pcie() -> Topology:
    """Return two NUMA nodes abcd and efgh, each with two PCIe switches of two cards; no NVLink."""
    ties = []
    for node in ("abcd", "efgh"):
        for x in node:
            for y in node:
                if x < y:
                    paired = {x, y} in ({node[0], node[1]}, {node[2], node[3]})
                    ties.append((x, y, Tie(Level.SWITCH if paired else Level.NUMA)))
    return Topology.of(ties)
