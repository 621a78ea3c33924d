"""The nodes as arrays: what is free where, kept up to date one node at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gaia_plugin.placement.cluster.ask import NodeState
from gaia_plugin.placement.cluster.classes import ROW, WHOLE, Bools, Classes, Ints
from gaia_plugin.placement.cluster.links import Mesh, mesh_of
from gaia_plugin.placement.cluster.worth import Worth

_FIRST_NODES: Final = 16
_FIRST_CARDS: Final = 8


NO_STATE: Final = -1
"""Of a row where no node is."""

_State = tuple[int, int, int, tuple[tuple[int, int, int, bool], ...]]


class Rooms:
    """One row a node; the row of a node that left is used again. Arrays of cards have a line for each card.

    A card that is not healthy, or of no memory, is no card here.
    """

    def __init__(self) -> None:
        self.classes = Classes()
        self.row: dict[str, int] = {}
        self.nodes: list[NodeState | None] = []
        self._state_of: list[_State | None] = []
        self.clock = 0
        """Counts changes; `changed` says of each row when it changed last."""
        self.built = 0
        """Counts changes of what cards there are, free or not."""
        self.sets: Counter[int] = Counter()
        """How many nodes have how many idle cards."""
        self.free_of: Counter[int] = Counter()
        """Percent free of all cards together, by class of node."""
        self.size_of: Counter[int] = Counter()
        """Healthy cards, by class of node."""
        self.meshes: list[Mesh | None] = [None]
        """The ways in which machines are built, numbered in the order seen; 0: nothing known."""
        self._mesh_numbers: dict[Mesh | None, int] = {None: 0}
        self._states: dict[_State, list[int]] = {}
        """The states that nodes are in: number, and how many nodes are in it."""
        self._next_state = 0
        self._rank: Ints | None = None
        self._spare: list[int] = []
        self._make(_FIRST_NODES, _FIRST_CARDS)

    def _make(self, rows: int, width: int) -> None:
        self.live: Bools = np.zeros(rows, np.bool_)
        self.changed: Ints = np.zeros(rows, np.int64)
        self.cpu: Ints = np.zeros(rows, np.int64)
        self.memory: Ints = np.zeros(rows, np.int64)
        self.kind: Ints = np.zeros(rows, np.int64)
        """The class that most of a node's cards are of."""
        self.whole: Ints = np.zeros(rows, np.int64)
        """Idle cards."""
        self.left: Ints = np.zeros(rows, np.int64)
        """Percent of memory and percent of cores free, added up over the cards."""
        self.amount: Ints = np.zeros(rows, np.int64)
        """Percent free, the scarcer of memory and cores of each card, added up."""
        self.state: Ints = np.full(rows, NO_STATE, np.int64)
        """The same number for nodes between which only the name decides."""
        self.mesh: Ints = np.zeros(rows, np.int64)
        """How its cards are tied, by number in `meshes`."""
        self.room: Ints = np.zeros(rows, np.int64)
        """Worth of the cards, added up; see `appraise`."""
        self.worth: Ints = np.zeros(rows, np.int64)
        """Worth of the node."""
        # Cards first: what is added up over the cards of a node is then added up along whole lines.
        self.units: Ints = np.zeros((width, rows), np.int64)
        self.cores: Ints = np.zeros((width, rows), np.int64)
        self.card_kind: Ints = np.zeros((width, rows), np.int64)
        self.place: Ints = np.zeros((width, rows), np.int64)
        """Where each card's free amount stands in the worth tables."""
        self.idle: Bools = np.zeros((width, rows), np.bool_)

    @property
    def rows(self) -> int:
        """Return how many rows there are, live or not."""
        return int(self.live.size)

    @property
    def rank(self) -> Ints:
        """Return each row's place in the order of names."""
        if self._rank is None:
            rank = np.full(self.rows, np.iinfo(np.int64).max, np.int64)
            rank[[self.row[name] for name in sorted(self.row)]] = np.arange(len(self.row))
            self._rank = rank
        return self._rank

    def put(self, node: NodeState) -> None:
        """Take a node as it stands now."""
        row, cards = self.row.get(node.name), (0, 0)
        if row is None:
            row = self._new_row(node.name)
        elif self.nodes[row] == node:
            return
        else:
            cards = self._count(row, -1)
        self._grow(self.rows, len(node.cards))
        before = self.nodes[row]
        self.nodes[row] = node
        if before is None or before.topology is not node.topology or len(before.cards) != len(node.cards):
            self.mesh[row] = self._number(mesh_of(node.topology, [card.uuid for card in node.cards]))
        self._fill(row, node)
        self.built += self._count(row, +1) != cards
        self._touch(row)

    def drop(self, name: str) -> None:
        """Forget a node; one that is not known is forgotten already."""
        row = self.row.pop(name, None)
        if row is None:
            return
        self._count(row, -1)
        self.built += 1
        self._spare.append(row)
        self.nodes[row] = self._rank = None
        self.live[row] = False
        self._enter(row, None)
        self._touch(row)

    def appraise(self, worth: Worth, rows: NDArray[np.intp]) -> None:
        """Put the worth of some nodes into `room` and `worth`."""
        self.room[rows] = worth.cards[self.place[:, rows]].sum(axis=0)
        self.worth[rows] = worth.of(self.room[rows], self.cpu[rows], self.memory[rows], self.kind[rows])

    def _number(self, mesh: Mesh | None) -> int:
        found = self._mesh_numbers.setdefault(mesh, len(self.meshes))
        if found == len(self.meshes):
            self.meshes.append(mesh)
        return found

    def _touch(self, row: int) -> None:
        self.clock += 1
        self.changed[row] = self.clock

    def _new_row(self, name: str) -> int:
        if self._spare:
            row = self._spare.pop()
        else:
            row = len(self.nodes)
            self.nodes.append(None)
            self._state_of.append(None)
            self._grow(row + 1, 0)
        self.row[name] = row
        self.live[row] = True
        self._rank = None
        return row

    def _grow(self, rows: int, width: int) -> None:
        """Make the arrays large enough, to the double each time."""
        old_width, old_rows = self.units.shape
        if rows <= old_rows and width <= old_width:
            return
        old = dict(vars(self))
        new_rows = old_rows if rows <= old_rows else max(rows, 2 * old_rows)
        new_width = old_width if width <= old_width else max(width, 2 * old_width)
        self._make(new_rows, new_width)
        for name, array in old.items():
            if isinstance(array, np.ndarray) and name != "_rank":
                kept = getattr(self, name)
                kept[tuple(slice(0, size) for size in array.shape)] = array
        self._rank = None

    def _enter(self, row: int, state: _State | None) -> None:
        """Give a row the number of its state; numbers of states that nobody is in are not used again."""
        before, now = self._state_of[row], state
        if before is not None:
            known = self._states[before]
            known[1] -= 1
            if not known[1]:
                del self._states[before]
        self._state_of[row] = now
        if now is None:
            self.state[row] = NO_STATE
            return
        if now not in self._states:
            self._next_state += 1
            self._states[now] = [self._next_state, 0]
        self._states[now][1] += 1
        self.state[row] = self._states[now][0]

    def _fill(self, row: int, node: NodeState) -> None:
        for array in (self.units, self.cores, self.card_kind, self.place, self.idle):
            array[:, row] = 0
        kinds: Counter[int] = Counter()
        cards: list[tuple[int, int, int, bool]] = []
        whole = left = amount = 0
        for line, card in enumerate(node.cards):
            if not card.healthy or card.capacity.units < 1:
                cards.append((0, 0, 0, False))
                continue
            kind, units, cores = self.classes.number(card), max(0, card.free.units), max(0, card.free.cores)
            kinds[kind] += 1
            cards.append((kind, units, cores, card.idle))
            self.card_kind[line, row], self.idle[line, row] = kind, card.idle
            self.units[line, row], self.cores[line, row] = units, cores
            self.place[line, row] = self.classes.base[kind] + units * ROW + cores
            percent = units * WHOLE // card.capacity.units
            whole, left, amount = whole + card.idle, left + percent + cores, amount + min(percent, cores)
        self.whole[row], self.left[row], self.amount[row] = whole, left, amount
        # By what they are, not by number: numbers depend on the order in which nodes came.
        self.kind[row] = min(kinds, key=lambda kind: (-kinds[kind], self.classes.all[kind]), default=0)
        self.cpu[row], self.memory[row] = node.cpu, node.memory
        # Which card is which matters only where they are tied in some way.
        mesh = int(self.mesh[row])
        self._enter(row, (node.cpu, node.memory, mesh, tuple(cards if mesh else sorted(cards))))

    def _count(self, row: int, sign: int) -> tuple[int, int]:
        """Add a row to the sums over all nodes, or take it out; return its class and number of cards."""
        kind, cards = int(self.kind[row]), int(np.count_nonzero(self.card_kind[:, row]))
        self.sets[int(self.whole[row])] += sign
        self.free_of[kind] += sign * int(self.amount[row])
        self.size_of[kind] += sign * cards
        return kind, cards


def rows_of(rooms: Rooms, names: Iterable[str]) -> Bools:
    """Return which rows are those of the named nodes; names that nobody knows are passed over."""
    mask = np.zeros(rooms.rows + 1, np.bool_)
    mask[np.fromiter(map(rooms.row.get, names, repeat(rooms.rows)), np.intp)] = True  # the last: unknown
    return mask[:-1]
