"""Reads from NVML what ties the cards of a machine: NVLink, then the PCIe tree.

Whatever a driver does not tell (old ones lack functions, virtual machines hide the tree) counts as
"any": placement then treats the cards as equally far from each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gaia_plugin.gpu.library import Library
from gaia_plugin.gpu.topology import Level, Tie, Topology


@dataclass(frozen=True, slots=True)
class Station:
    """A card as NVML knows it here: its handle, and where it is attached."""

    handle: Any
    pci_bus_id: str
    numa: int | None


@dataclass(frozen=True, slots=True)
class _NvLinks:
    """The active NVLinks of one card: how many lead to which bus id, and how many to no card."""

    direct: Mapping[str, int]
    elsewhere: int


def read_topology(library: Library, stations: Mapping[str, Station]) -> Topology:
    """Ask NVML what ties each two of the cards in `stations` (by UUID)."""
    buses = {station.pci_bus_id for station in stations.values() if station.pci_bus_id}
    nvlinks = {uuid: _nvlinks(library, station.handle, buses) for uuid, station in stations.items()}

    def tie(one: str, other: str) -> Tie:
        a, b = stations[one], stations[other]
        links = _links_between(library, (a, nvlinks[one]), (b, nvlinks[other]))
        return Tie(Level.NVLINK, links) if links else Tie(_pcie_level(library, a, b))

    return Topology.of((one, other, tie(one, other)) for one, other in combinations(stations, 2))


def _nvlinks(library: Library, handle: Any, buses: set[str]) -> _NvLinks:
    nvml = library.pynvml
    direct: Counter[str] = Counter()
    elsewhere = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
        except library.error:
            break  # The card has no more links than these, or none at all.
        try:
            remote = bus_text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
        except library.error:
            remote = ""
        if remote in buses:
            direct[remote] += 1
        else:
            elsewhere += 1
    return _NvLinks(direct, elsewhere)


def _links_between(library: Library, one: tuple[Station, _NvLinks], other: tuple[Station, _NvLinks]) -> int:
    """Return the NVLinks between two cards: direct ones, else those they both have to switches."""
    (a, from_a), (b, from_b) = one, other
    direct = max(from_a.direct.get(b.pci_bus_id, 0), from_b.direct.get(a.pci_bus_id, 0))
    switched = min(from_a.elsewhere, from_b.elsewhere)
    if direct or not switched:
        return direct
    # A link to something that is no card here ends in a switch, or in a card this machine does not
    # see. Only the driver's answer for the pair says that both ends meet.
    nvml = library.pynvml
    try:
        status = nvml.nvmlDeviceGetP2PStatus(a.handle, b.handle, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except library.error:
        return 0
    return switched if status == nvml.NVML_P2P_STATUS_OK else 0


def _pcie_level(library: Library, a: Station, b: Station) -> Level:
    nvml = library.pynvml
    try:
        ancestor = nvml.nvmlDeviceGetTopologyCommonAncestor(a.handle, b.handle)
    except library.error:
        ancestor = nvml.NVML_TOPOLOGY_SYSTEM
    if ancestor <= nvml.NVML_TOPOLOGY_MULTIPLE:
        return Level.SWITCH
    if ancestor <= nvml.NVML_TOPOLOGY_NODE or (a.numa is not None and a.numa == b.numa):
        return Level.NUMA
    return Level.ANY


def bus_text(value: bytes | str) -> str:
    """Write a PCI bus id in one way: ``00000000:01:00.0``, lower case, eight digits of domain."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    domain, colon, rest = text.strip("\0 ").lower().partition(":")
    return f"{domain:0>8}:{rest}" if colon else text
