"""What `Compute` reads from pages and writes to them, damaged ones included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gaia_plugin.agent.compute import Compute
from gaia_plugin.agent.elastic import WHOLE
from gaia_plugin.ledger import SliceRecord
from gaia_plugin.shares import Share
from tests.unit.agent.compute_bench import CARD, CORE, FULL, OTHER, slot
from tests.unit.agent.compute_bench import bench as bench


def test_a_resize_keeps_borrowed_time_and_is_seen_at_once(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"))
    here.step(10, a=FULL)
    share = Share(8, 50)
    old = here.records["a"]
    here.records["a"] = replace(old, slices=(SliceRecord(CARD, share, share, share),), generation=2)
    here.directories.store(here.records["a"])
    assert here.rate("a") == WHOLE
    assert here.time("a").guaranteed == 500


def test_cores_of_a_hard_slot_change_at_once_in_both_directions(bench: Any) -> None:
    here = bench(slot("a", 40))
    for cores in (70, 10):
        share = Share(4, cores)
        here.records["a"] = replace(here.records["a"], slices=(SliceRecord(CARD, share, share, share),))
        here.directories.store(here.records["a"])
        assert here.rate("a") == cores * CORE
        assert here.time("a").limit == cores * 10
        here.step(1, a=FULL)
        assert here.rate("a") == cores * CORE


@pytest.mark.parametrize("noise", [b"", b"\xff" * 70_000, b"\0" * 4096])
def test_noise_in_a_usage_page_is_a_value(bench: Any, noise: bytes) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 60, "elastic"))
    (here.directories.path("a") / "usage").write_bytes(noise)
    here.step(10, b=FULL)
    assert here.rate("a") >= 40 * CORE
    assert here.rate("b") >= 60 * CORE
    assert 0 <= here.time("a").used <= 1000


def test_counters_that_fall_or_jump_stay_within_the_card(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"))
    here.words["a"] = [1 << 63, 1 << 63, 5]
    here.step(3, a=(0.0, 0.0))
    here.words["a"] = [0, 0, 0]
    here.step(3, a=(10.0, 0.0))
    assert 0 <= here.time("a").used <= 1000
    assert 0 <= here.time("a").throttled <= 1000


def test_without_an_agent_every_slot_is_left_at_its_guarantee(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 40, "elastic"), slot("c", 20))
    here.step(10, a=FULL, b=FULL)
    assert here.rate("a") > 30 * CORE
    assert here.rate("b") > 40 * CORE
    (here.directories.path("c") / "limits").write_bytes(b"")
    here.directories._forget("c")
    here.compute.leave(list(here.records.values()))
    assert (here.rate("a"), here.rate("b")) == (30 * CORE, 40 * CORE)


def test_a_damaged_limits_page_ends_nothing(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 20, "elastic"))
    (here.directories.path("a") / "limits").write_bytes(b"")
    here.directories._forget("a")
    here.step(5, a=FULL, b=FULL)
    assert here.rate("b") > 20 * CORE


def test_who_rests_is_read_and_nothing_else_until_a_word_of_theirs_changes(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 60, "elastic"), slot("c", 10, cards=(OTHER,)))
    here.step(10, a=FULL, b=FULL)
    here.step(10)
    worked_out: list[str] = []
    real = Compute._card

    def card(self: Compute, uuid: str, *rest: Any) -> Any:
        worked_out.append(uuid)
        return real(self, uuid, *rest)

    monkeypatch.setattr(Compute, "_card", card)
    here.step(10)
    assert worked_out == []
    here.step(1, b=(30.0, 70.0))
    assert worked_out == [CARD]
    assert here.time("b").limit == 1000
    assert here.time("a").limit == 400
    here.now += 60.0  # a step that comes late
    here.step(1)
    here.step(10)
    worked_out.clear()
    here.records["a"] = replace(here.records["a"], maximum=Share(94, 40))
    here.step(1)
    assert worked_out == [CARD]
