"""The values placement works on: cards as they stand, a request, and the slices that answer it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gaia_plugin.shares import NOTHING, Share


@dataclass(frozen=True, slots=True)
class CardState:
    """A card as placement sees it.

    `free` is capacity less what is held; it may be negative where a container was found above
    its limit. A card that is not healthy gets no new slice.
    """

    uuid: str
    model: str
    capacity: Share
    free: Share
    healthy: bool = True

    @property
    def idle(self) -> bool:
        """Tell whether nothing at all is held on this card."""
        return self.free == self.capacity


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: totals over all cards.

    Args:
        memory_units: units of 256 MiB; None: whole cards' memory, for `cores` in whole cards.
        cores: percent of one card; None: the same part as `memory_units` is of the card's memory.
        count: distinct cards to split it evenly over.
        models: names of card models that will do; empty: any.
    """

    memory_units: int | None = None
    cores: int | None = None
    count: int = 1
    models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Slice:
    """A share of one card, named by its UUID."""

    card: str
    share: Share


def total(slices: Iterable[Slice]) -> Share:
    """Add up what the slices hold."""
    return sum((one.share for one in slices), NOTHING)
