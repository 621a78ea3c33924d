"""An agent reduced to ledger and slot directories; works at random until it is killed.

Started by `test_ledger_crash.py` as ``python ledger_worker.py STATE SEED``. First it recovers, then
it writes a line for each answer given: the slot, and its generation or ``gone``.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from gaia_plugin.errors import Refusal
from gaia_plugin.ledger import CardCapacity, Ledger, SlotRecord
from gaia_plugin.placement.model import CardState, Slice
from gaia_plugin.shares import Share
from gaia_plugin.slots.directory import SlotDirectories

CARDS = tuple(
    CardCapacity(f"GPU-00000000-0000-0000-0000-00000000000{index}", index, "sim", 32) for index in range(3)
)
NAMES = tuple(f"slot{number}" for number in range(6))


def recover(ledger: Ledger, directories: SlotDirectories, driver: Path) -> None:
    """Page := target, for every slot; what no slot owns goes."""
    ledger.set_cards(CARDS)
    for record in ledger.slots():
        directories.create(record, CARDS, driver)
    for orphan in set(directories.slots()) - {record.slot for record in ledger.slots()}:
        directories.remove(orphan)


class Worker:
    """Does what an agent does, in the agent's order."""

    def __init__(self, state: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ledger = Ledger(state / "ledger.sqlite")
        self.directories = SlotDirectories(state, state / "shadows")
        self.driver = state / "driver"
        recover(self.ledger, self.directories, self.driver)
        print("ready", flush=True)

    def run(self) -> None:
        actions = (self.grant, self.resize, self.resize, self.grow_in_steps, self.release, self.overhead)
        while True:
            name = self.dice.choice(NAMES)
            try:
                answer = self.dice.choice(actions)(name)
            except Refusal:
                continue
            print(name, answer, flush=True)

    def share(self) -> Share:
        return Share(self.dice.randint(1, 24), self.dice.randint(1, 60))

    def grant(self, name: str) -> str:
        def choose(states: list[CardState]) -> list[Slice]:
            cards = self.dice.sample(CARDS, self.dice.randint(1, 2))
            return [Slice(card.uuid, self.share()) for card in cards]

        record = self.ledger.grant(name, name, "", choose, Share(64, 200), "hard")
        self.directories.create(record, CARDS, self.driver)
        return str(record.generation)

    def resize(self, name: str) -> str:
        new = {part.card: self.share() for part in self.ledger.slot(name).slices}
        record = self.ledger.resize(name, new)
        self.directories.store(record)
        self.settle(record)
        return str(record.generation)

    def grow_in_steps(self, name: str) -> str:
        new = {part.card: self.share() for part in self.ledger.slot(name).slices}
        self.ledger.hold(name, new)
        if self.dice.random() < 0.3:
            return str(self.ledger.undo(name).generation)
        record = self.ledger.commit(name)
        self.directories.store(record)
        return str(record.generation)

    def release(self, name: str) -> str:
        record = self.ledger.release(name)
        self.directories.store(record)
        self.ledger.settle(name, record.generation, {part.card: 0 for part in record.slices})
        self.ledger.remove(name)
        self.directories.remove(name)
        return "gone"

    def overhead(self, name: str) -> str:
        record = self.ledger.slot(name)
        self.directories.store_overhead(name, self.dice.randrange(1024), self.dice.randrange(1 << 63), [1, 2])
        self.directories.heartbeat(name)
        self.settle(record)
        return str(record.generation)

    def settle(self, record: SlotRecord) -> None:
        use = {part.card: self.dice.randint(0, 24) for part in record.slices}
        self.ledger.settle(record.slot, record.generation, use)


if __name__ == "__main__":
    Worker(Path(sys.argv[1]), int(sys.argv[2])).run()
