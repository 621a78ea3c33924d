"""How closely two cards are linked: the topology tree, as a value.

The tree is that of the GaiaGPU paper (Gu et al., 2018, section IV), with NVLink above it: cards
that share NVLink, a PCIe switch, a host bridge or NUMA node, or nothing but the machine. This
module reads no hardware; `gaia_plugin.gpu.links` builds the value from NVML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType


class Level(IntEnum):
    """The closest thing two cards share; larger is closer."""

    ANY = 0
    """Only the machine: traffic crosses sockets. Also what is told of a link nobody knows."""
    NUMA = 1
    """A host bridge or NUMA node."""
    SWITCH = 2
    """One or more PCIe switches (or one board)."""
    NVLINK = 3
    """NVLink, directly or through NVSwitch."""


@dataclass(frozen=True, slots=True)
class Tie:
    """What ties two cards: the level and, for NVLink, the number of links between them."""

    level: Level = Level.ANY
    links: int = 0

    @property
    def weight(self) -> int:
        """What the tie is worth: 0, 10 or 20 on the PCIe tree, 100 for each NVLink.

        The proportions are those of link bandwidth: an NVLink carries several times a PCIe path,
        and each bond adds.
        """
        if self.level is Level.NVLINK:
            return 100 * max(self.links, 1)
        return 10 * self.level


_LOOSE = Tie()


@dataclass(frozen=True)
class Topology:
    """The ties between pairs of cards, by UUID. A pair that is not in it is tied by nothing."""

    ties: Mapping[frozenset[str], Tie] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pair in self.ties:
            if len(pair) != 2:
                raise ValueError(f"a tie is between two cards, not {sorted(pair)}")
        object.__setattr__(self, "ties", MappingProxyType(dict(self.ties)))

    @classmethod
    def of(cls, ties: Iterable[tuple[str, str, Tie]]) -> Topology:
        """Build a topology from (one card, the other, what ties them)."""
        return cls({frozenset((one, other)): tie for one, other, tie in ties})

    def tie(self, one: str, other: str) -> Tie:
        """Return what ties two distinct cards."""
        return self.ties.get(frozenset((one, other)), _LOOSE)

    def level(self, one: str, other: str) -> Level:
        """Return the closest thing two distinct cards share."""
        return self.tie(one, other).level

    def groups(self, level: Level, cards: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """Cut `cards` into the branches of the tree at `level`: whoever shares that or better.

        Groups and their members are in UUID order; a card that shares nothing is a group alone.
        """
        left = sorted(set(cards))
        found: list[tuple[str, ...]] = []
        while left:
            group, fresh = {left[0]}, [left[0]]
            while fresh:
                here = fresh.pop()
                near = [card for card in left if card not in group and self.level(here, card) >= level]
                group.update(near)
                fresh.extend(near)
            found.append(tuple(sorted(group)))
            left = [card for card in left if card not in group]
        return tuple(found)
