"""How well the cards that are free on a node are tied to each other, for a request that takes several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gaia_plugin.gpu.topology import Level, Topology

Mesh = tuple[tuple[Level, ...], ...]
"""What each two cards of a node share, by their places: equal for machines that are built alike."""

_MOST_TRIES: Final = 100_000


def mesh_of(topology: Topology, cards: Sequence[str]) -> Mesh | None:
    """Return the mesh of a node's cards, in their order; None where nothing is known to tie them."""
    if not topology.ties:
        return None
    return tuple(tuple(topology.level(a, b) if a != b else Level.NVLINK for b in cards) for a in cards)


def closest(mesh: Mesh | None, free: Sequence[int], count: int) -> Level:
    """Return the level that some `count` of the cards at the places `free` share, each with each."""
    if mesh is None or count > len(free):
        return Level.ANY
    return _closest(mesh, tuple(free), count)


@lru_cache(maxsize=4096)
def _closest(mesh: Mesh, free: tuple[int, ...], count: int) -> Level:
    for level in (Level.NVLINK, Level.SWITCH, Level.NUMA):
        near = {i: sum(1 << j for j in free if j != i and mesh[i][j] >= level) for i in free}
        if _Cliques(near).has(sum(1 << i for i in free), count):
            return level
    return Level.ANY


class _Cliques:
    """Looks for cards that are all near each other; sets are whole numbers of any length, a bit a card."""

    def __init__(self, near: dict[int, int]) -> None:
        self._near = near
        self._tries = 0

    def has(self, among: int, count: int) -> bool:
        """Tell whether `count` of the cards in `among` are near each other.

        Where that takes too long to find out, the answer is no: the node is then taken for less than it is.
        """
        if count == 0:
            return True
        while among.bit_count() >= count and self._tries < _MOST_TRIES:
            self._tries += 1
            lowest = among & -among
            among ^= lowest
            if self.has(among & self._near[lowest.bit_length() - 1], count - 1):
                return True
        return False
