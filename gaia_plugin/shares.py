"""A share of one card: units of memory and cores. The currency of placement and ledger."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=False)
class Share:
    """Units of 256 MiB and cores (percent of one card's time); both are whole numbers."""

    units: int = 0
    cores: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.units + other.units, self.cores + other.cores)

    def __sub__(self, other: Share) -> Share:
        return Share(self.units - other.units, self.cores - other.cores)

    def fits(self, room: Share) -> bool:
        """Tell whether this share fits into `room` in both respects."""
        return self.units <= room.units and self.cores <= room.cores

    def most(self, other: Share) -> Share:
        """Return the larger of each respect."""
        return Share(max(self.units, other.units), max(self.cores, other.cores))

    def least(self, other: Share) -> Share:
        """Return the smaller of each respect."""
        return Share(min(self.units, other.units), min(self.cores, other.cores))


NOTHING = Share(0, 0)
