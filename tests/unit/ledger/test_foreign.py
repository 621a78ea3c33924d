"""What is in use in nobody's slot is not granted, and overbooks nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.counted import Holder
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.ledger import CardCapacity, Ledger
from gaia_plugin.placement.model import Slice
from gaia_plugin.shares import Share


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.set_cards([CardCapacity("GPU-0", 0, "Played", 32), CardCapacity("GPU-1", 1, "Played", 32)])
        slices = [Slice("GPU-0", Share(8, 25))]
        ledger.grant("a", "a", "", lambda _: slices, Share(32, 100), "hard")
        yield ledger


def test_it_is_free_for_nobody(ledger: Ledger) -> None:
    ledger.set_foreign({"GPU-0": 10, "GPU-1": 0, "GPU-9": 4})
    assert ledger.foreign() == {"GPU-0": 10, "GPU-9": 4}
    assert ledger.free() == {"GPU-0": Share(14, 75), "GPU-1": Share(32, 100)}
    assert [state.free.units for state in ledger.states()] == [14, 32]
    assert ledger.could_reach("a") == Share(22, 100)
    with pytest.raises(Refusal) as refused:
        ledger.resize("a", {"GPU-0": Share(23, 25)})
    assert (refused.value.code, refused.value.best_memory) == (Code.CARD_FULL, 22 * 256 << 20)
    assert ledger.resize("a", {"GPU-0": Share(22, 25)}).target.units == 22


def test_it_stands_beside_reservations_and_goes_by_itself(ledger: Ledger) -> None:
    ledger.set_foreign({"GPU-0": 10})
    ledger.set_reservations({Holder("uid", "main"): {"GPU-0": Share(4, 5)}})
    assert ledger.free()["GPU-0"] == Share(10, 70)
    assert ledger.reservations() == {Holder("uid", "main"): {"GPU-0": Share(4, 5)}}
    ledger.set_foreign({})
    assert ledger.free()["GPU-0"] == Share(20, 70)


def test_more_than_is_left_overbooks_nothing_and_stops_no_shrink(ledger: Ledger) -> None:
    ledger.set_foreign({"GPU-0": 30})
    assert ledger.free()["GPU-0"] == Share(0, 75)
    assert ledger.could_reach("a") == Share(8, 100)
    assert ledger.resize("a", {"GPU-0": Share(4, 25)}).target.units == 4
    assert ledger.overbooked() == {}
