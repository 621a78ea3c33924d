"""How a card's time is divided among its slots, over time."""

from __future__ import annotations

from typing import Any

import pytest

from gaia_plugin.agent.elastic import WHOLE
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.slots.directory import SlotDirectories
from tests.unit.agent.compute_bench import CARD, CORE, FULL, OTHER, slot
from tests.unit.agent.compute_bench import bench as bench


def test_a_hard_slot_keeps_its_rate_whatever_it_wants(bench: Any) -> None:
    here = bench(slot("a", 25))
    here.step(20, a=(25.0, 75.0))
    assert here.rate("a") == 25 * CORE
    now = here.time("a")
    assert (now.guaranteed, now.limit, now.ceiling, now.used, now.throttled) == (250, 250, 250, 250, 750)


def test_an_elastic_slot_alone_gets_the_card(bench: Any) -> None:
    here = bench(slot("a", 25, "elastic"), slot("b", 50))
    assert here.rate("a") == 25 * CORE
    here.step(1, a=(25.0, 75.0))
    assert here.rate("a") == WHOLE
    here.step(10, a=FULL)
    now = here.time("a")
    assert (now.guaranteed, now.limit, now.used) == (250, 1000, 1000)


def test_what_is_lent_comes_back_in_one_step_and_falls_before_it_rises(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bench(slot("a", 30, "elastic"), slot("b", 40, "elastic"))
    here.step(10, a=FULL)
    assert here.rate("a") == WHOLE
    assert here.rate("b") > 75 * CORE  # who comes back to a card at work has its kernels wait for turns
    stored: list[tuple[str, int]] = []
    real = SlotDirectories.store_rate

    def store(self: SlotDirectories, record: SlotRecord, card: str, rate: int) -> None:
        stored.append((record.slot, rate))
        real(self, record, card, rate)

    monkeypatch.setattr(SlotDirectories, "store_rate", store)
    here.step(1, a=FULL, b=(20.0, 80.0))
    # 30 % are idle and divided 3 : 4
    assert (here.time("a").limit, here.time("b").limit) == (429, 571)
    assert 429_000 < here.rate("a") < 90 * CORE
    assert here.rate("b") > 80 * CORE
    assert [name for name, _ in stored] == ["a", "b"]


def test_a_slot_that_uses_little_lends_the_rest(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 60, "elastic"))
    here.step(20, a=FULL, b=(10.0, 0.0))
    # its kernels wait half of that time for the other's: it uses five, and a quarter and two more are kept
    assert here.rate("b") >= 60 * CORE
    assert 910 <= here.time("a").limit <= 920


def test_one_that_has_just_come_back_has_all_of_its_guarantee_kept(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 60, "elastic"))
    here.step(10, a=FULL)
    here.step(1, a=FULL, b=(1.0, 0.0))
    assert here.time("a").limit == 400


def test_a_slot_idle_for_a_second_lends_everything(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 60, "elastic"))
    here.step(5, a=FULL, b=FULL)
    assert here.time("a").limit == 400
    here.step(8, a=FULL)
    assert here.rate("a") == WHOLE
    here.step(20)
    assert here.rate("a") == 40 * CORE


def test_the_cards_ceiling_bounds_the_lending_and_no_guarantee(bench: Any) -> None:
    here = bench(slot("a", 20, "elastic"), slot("b", 75), ceiling=90 * CORE)
    here.step(10, a=FULL)
    assert here.rate("a") == 90 * CORE
    here.step(10, a=FULL, b=FULL)
    assert here.time("a").limit == 200
    assert here.time("b").limit == 750


def test_the_slots_own_maximum_bounds_it(bench: Any) -> None:
    here = bench(slot("a", 20, "elastic", most=50))
    here.step(10, a=FULL)
    assert here.rate("a") == 50 * CORE
    assert here.time("a").ceiling == 500


def test_a_whole_card_is_not_limited(bench: Any) -> None:
    here = bench(slot("a", 100), slot("b", 100, "elastic", cards=(OTHER,)))
    here.step(10, a=FULL, b=FULL)
    assert here.rate("a") == here.rate("b", OTHER) == WHOLE


def test_each_card_of_a_slot_is_divided_by_itself(bench: Any) -> None:
    here = bench(slot("a", 30, "elastic", 200, (CARD, OTHER)), slot("b", 70, cards=(OTHER,)))
    here.step(10, a=FULL)
    assert here.rate("a") == WHOLE
    assert here.rate("a", OTHER) == 30 * CORE
    assert here.time("a").limit == 1000 + 300
    assert [card.uuid for card in here.time("a").cards] == [CARD, OTHER]
