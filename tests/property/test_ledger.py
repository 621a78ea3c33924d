"""No sequence of grants, resizes, crashes and releases breaks an invariant of the ledger.

The model is deliberately plain: numbers by slot and card, the rules in a line each. What the
ledger refuses, the model must find impossible too; what a refusal offers must be granted.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import CardCapacity, Ledger, SlotRecord, split
from gaia_plugin.placement.model import Slice
from gaia_plugin.shares import NOTHING, Share
from gaia_plugin.units import MEMORY_UNIT

# mostly small, so that several slots live side by side and changes are granted as often as refused
UNITS = st.one_of(st.integers(1, 6), st.integers(1, 6), st.integers(1, 30))
CORES = st.one_of(st.integers(1, 25), st.integers(1, 25), st.integers(1, 110))
SHARES = st.builds(Share, UNITS, CORES)


class Killed(Exception):
    """The agent dies here."""


@dataclass
class Model:
    """One slot: by card what is in force and what is booked."""

    target: dict[str, Share]
    held: dict[str, Share]
    maximum: Share
    generation: int = 1
    releasing: bool = False
    growing: dict[str, Share] | None = None


def refused(action: Callable[[], object]) -> Refusal | None:
    """Return the refusal that `action` meets, if any."""
    try:
        action()
    except Refusal as refusal:
        return refusal
    return None


class LedgerMachine(RuleBasedStateMachine):
    """Drives a ledger and the model side by side."""

    @initialize(capacities=st.lists(st.integers(8, 32), min_size=1, max_size=3))
    def start(self, capacities: list[int]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.sqlite"
        self.capacity = {f"GPU-{index}": units for index, units in enumerate(capacities)}
        self.healthy = set(self.capacity)
        self.slots: dict[str, Model] = {}
        self.names = (f"slot{number}" for number in itertools.count())
        self.ledger = Ledger(self.path)
        self._tell_cards()

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.folder.cleanup()

    # -- the model's side of things

    def _tell_cards(self) -> None:
        self.ledger.set_cards(
            CardCapacity(uuid, index, "sim", units, healthy=uuid in self.healthy)
            for index, (uuid, units) in enumerate(self.capacity.items())
        )

    def free(self, card: str) -> Share:
        held = sum((slot.held[card] for slot in self.slots.values() if card in slot.held), NOTHING)
        return Share(self.capacity[card], 100) - held

    def possible(self, slot: Model, new: dict[str, Share]) -> bool:
        if slot.releasing or not all(share.units > 0 and share.cores > 0 for share in new.values()):
            return False
        if not sum(new.values(), NOTHING).fits(slot.maximum):
            return False
        return all(self._may_be(slot, card, share) for card, share in new.items())

    def _may_be(self, slot: Model, card: str, share: Share) -> bool:
        target, held, free = slot.target[card], slot.held[card], self.free(card)
        if card not in self.healthy:
            return share.fits(target)
        units = share.units <= target.units or (free.units >= 0 and share.units <= held.units + free.units)
        cores = share.cores <= target.cores or (free.cores >= 0 and share.cores <= held.cores + free.cores)
        return units and cores

    def pick(self, data: st.DataObject) -> tuple[str, Model]:
        name = data.draw(st.sampled_from(sorted(self.slots)))
        return name, self.slots[name]

    def targets(self, data: st.DataObject, slot: Model) -> dict[str, Share]:
        return {card: data.draw(SHARES) for card in slot.target}

    def aim(self, slot: Model, new: dict[str, Share]) -> None:
        if new != slot.target:
            slot.generation += 1
            slot.growing = None
        slot.target = dict(new)
        slot.held = {card: slot.held[card].most(share) for card, share in new.items()}

    def offer_is_granted(self, name: str, refusal: Refusal) -> None:
        """Ask for exactly what was offered, up to the commit, so that nothing changes here."""
        assert refusal.best_memory is not None
        record = self.ledger.slot(name)
        new = split(record, refusal.best_memory // MEMORY_UNIT, refusal.best_cores)
        with pytest.raises(Killed), self.dying():
            self.ledger.resize(name, new)
        self.restart()

    # -- crashes

    @staticmethod
    @contextlib.contextmanager
    def dying() -> Iterator[None]:
        """While this lasts every commit of a ledger kills the agent just before it."""

        def die(ledger: Ledger) -> None:
            raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "_commit", die)
            yield

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.path)
        for slot in self.slots.values():
            slot.growing = None

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def crash_before_the_commit(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        new = self.targets(data, slot)
        actions: list[Callable[[], object]] = [
            lambda: self.ledger.resize(name, new),
            lambda: self.ledger.hold(name, new),
            lambda: self.ledger.commit(name),
            lambda: self.ledger.release(name),
            lambda: self.ledger.settle(name, slot.generation, dict.fromkeys(slot.target, 0)),
            lambda: self.ledger.remove(name),
        ]
        with pytest.raises((Killed, Refusal)), self.dying():
            data.draw(st.sampled_from(actions))()
        self.restart()

    # -- what an agent does

    @rule(data=st.data(), more=st.builds(Share, st.integers(-1, 24), st.integers(-1, 90)))
    def grant(self, data: st.DataObject, more: Share) -> None:
        cards = data.draw(
            st.lists(st.sampled_from(sorted(self.capacity)), min_size=1, max_size=3, unique=True)
        )
        shares = {card: data.draw(SHARES) for card in cards}
        maximum = sum(shares.values(), NOTHING) + more
        name = next(self.names)
        fits = sum(shares.values(), NOTHING).fits(maximum) and all(
            card in self.healthy and share.fits(self.free(card)) for card, share in shares.items()
        )
        slices = [Slice(*item) for item in shares.items()]
        refusal = refused(lambda: self.ledger.grant(name, "o", "", lambda _: slices, maximum, "hard"))
        assert fits == (refusal is None), refusal
        if refusal is not None:
            self._grant_offer(refusal, len(cards), maximum)
            return
        assert [part.card for part in self.ledger.slot(name).slices] == cards
        self.slots[name] = Model(dict(shares), dict(shares), maximum)

    def _grant_offer(self, refusal: Refusal, count: int, maximum: Share) -> None:
        if refusal.code != Code.CARD_FULL or refusal.best_memory is None or refusal.best_cores is None:
            return
        each = Share(refusal.best_memory // MEMORY_UNIT // count, refusal.best_cores // count)
        roomy = [card for card in self.healthy if each.fits(self.free(card))]
        assert len(roomy) >= count
        assert Share(1, 1).fits(each)
        assert Share(each.units * count, each.cores * count).fits(maximum)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), stale=st.booleans())
    def resize(self, data: st.DataObject, stale: bool) -> None:
        name, slot = self.pick(data)
        new = self.targets(data, slot)
        generation = slot.generation + stale
        refusal = refused(lambda: self.ledger.resize(name, new, generation))
        assert (refusal is None) == (not stale and self.possible(slot, new)), refusal
        if refusal is None:
            self.aim(slot, new)
        elif refusal.best_memory is not None:
            self.offer_is_granted(name, refusal)

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def reach(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        most = self.ledger.could_reach(name)
        if slot.releasing:
            assert most == NOTHING
            return
        count = len(slot.target)
        each = Share(most.units // count, most.cores // count)
        assert self.possible(slot, dict.fromkeys(slot.target, each))
        assert not self.possible(slot, dict.fromkeys(slot.target, each + Share(1, 0)))
        assert not self.possible(slot, dict.fromkeys(slot.target, each + Share(0, 1)))

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        new = self.targets(data, slot)
        refusal = refused(lambda: self.ledger.hold(name, new))
        assert (refusal is None) == (slot.growing is None and self.possible(slot, new)), refusal
        if refusal is not None:
            return
        slot.growing = new
        slot.held = {card: slot.held[card].most(share) for card, share in new.items()}

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        refusal = refused(lambda: self.ledger.commit(name))
        assert (refusal is None) == (slot.growing is not None), refusal
        if slot.growing is not None:
            self.aim(slot, slot.growing)
            slot.growing = None

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        self.ledger.undo(name)
        slot.growing = None

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), stale=st.booleans())
    def settle(self, data: st.DataObject, stale: bool) -> None:
        name, slot = self.pick(data)
        known = data.draw(st.sets(st.sampled_from(sorted(slot.target))))
        use = {card: data.draw(st.integers(0, 40)) for card in sorted(known)}
        refusal = refused(lambda: self.ledger.settle(name, slot.generation - stale, use))
        assert (refusal is None) == (not stale), refusal
        if stale:
            return
        for card, held in slot.held.items():
            floor = slot.target[card].most((slot.growing or {}).get(card, NOTHING))
            units = min(held.units, max(floor.units, use.get(card, held.units)))
            slot.held[card] = Share(units, floor.cores)

    @precondition(lambda self: self.slots)
    @rule(data=st.data(), units=st.integers(0, 60))
    def raise_held(self, data: st.DataObject, units: int) -> None:
        name, slot = self.pick(data)
        card = data.draw(st.sampled_from(sorted(slot.target)))
        self.ledger.raise_held(name, card, units)
        slot.held[card] = slot.held[card].most(Share(units, 0))

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        self.ledger.release(name)
        if not slot.releasing:
            self.aim(slot, dict.fromkeys(slot.target, NOTHING))
            slot.releasing, slot.growing = True, None

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name, slot = self.pick(data)
        empty = all(held == NOTHING for held in slot.held.values())
        refusal = refused(lambda: self.ledger.remove(name))
        assert (refusal is None) == empty, refusal
        if empty:
            del self.slots[name]

    @rule(data=st.data(), units=st.integers(4, 40), healthy=st.booleans())
    def card_changes(self, data: st.DataObject, units: int, healthy: bool) -> None:
        card = data.draw(st.sampled_from(sorted(self.capacity)))
        self.capacity[card] = units
        (self.healthy.add if healthy else self.healthy.discard)(card)
        self._tell_cards()

    # -- what is always true

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        if not hasattr(self, "ledger"):
            return
        records = {record.slot: record for record in self.ledger.slots()}
        assert records.keys() == self.slots.keys()
        for name, slot in self.slots.items():
            self._same(records[name], slot)
        over = self.ledger.overbooked()
        for card, free in self.ledger.free().items():
            assert free == self.free(card).most(NOTHING)
            assert over.get(card, NOTHING) == (NOTHING - self.free(card)).most(NOTHING)

    @staticmethod
    def _same(record: SlotRecord, slot: Model) -> None:
        assert {part.card: part.target for part in record.slices} == slot.target
        assert {part.card: part.held for part in record.slices} == slot.held
        assert (record.generation, record.releasing) == (slot.generation, slot.releasing)
        assert record.target.fits(record.held)
        assert record.target.fits(record.maximum)


COMMON = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    # explaining a failure takes minutes here and says nothing that the shrunk steps do not
    phases=[phase for phase in Phase if phase is not Phase.explain],
)


class TestLedger(LedgerMachine.TestCase):  # type: ignore[valid-type,misc]
    """A short walk."""

    settings = settings(COMMON, max_examples=60, stateful_step_count=30)


@pytest.mark.long
class TestLedgerLong(LedgerMachine.TestCase):  # type: ignore[valid-type,misc]
    """A long walk."""

    settings = settings(COMMON, max_examples=1500, stateful_step_count=60)
