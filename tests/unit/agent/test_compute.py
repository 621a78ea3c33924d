"""Compute shares over time: real pages, a played clock and a played driver."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.agent.compute import EVERY, Compute
from gaia_plugin.agent.elastic import MEASURED, WHOLE
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.api import models
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu import Use
from gaia_plugin.ledger import CardCapacity, SliceRecord, SlotRecord
from gaia_plugin.shares import Share
from gaia_plugin.slots import pages
from gaia_plugin.slots.directory import SlotDirectories
from gaia_plugin.slots.processes import Stat

CARD, OTHER = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
CORE = 10_000


def slot(name: str, cores: int, mode: str = "hard", most: int = 100, cards: tuple[str, ...] = (CARD,)) -> Any:
    share = Share(4, cores)
    slices = tuple(SliceRecord(card, share, share, share) for card in cards)
    return SlotRecord(name, name, "", 1, False, mode, Share(94, most), slices, None, None, time.time())


@dataclass
class Driver:
    """Says what a test lets it say; `asked` are the cards that it was asked about."""

    answers: list[tuple[Use, ...] | Refusal] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        self.asked.append(uuid)
        answer = self.answers.pop(0) if self.answers else ()
        if isinstance(answer, Refusal):
            raise answer
        return tuple(use for use in answer if use.at > since)


@dataclass
class Bench:
    """Slots on cards. `work` says in percent how each slot's process spends the next step."""

    directories: SlotDirectories
    driver: Driver
    records: dict[str, SlotRecord] = field(default_factory=dict)
    now: float = 1000.0
    words: dict[str, list[int]] = field(default_factory=dict)
    blind: dict[str, int] = field(default_factory=dict)
    run: list[Callable[[], None]] = field(default_factory=list)
    hang: bool = False

    def __post_init__(self) -> None:
        gauge = Gauge(self.driver, lambda run: None if self.hang else run())
        self.compute = Compute(self.directories, gauge, lambda: self.now)

    def add(self, record: SlotRecord, driver: Path) -> None:
        self.records[record.slot] = record
        self.words[record.slot] = [0, 0, 0]
        capacities = [CardCapacity(card, i, "Played", 94) for i, card in enumerate((CARD, OTHER))]
        self.directories.create(record, capacities, driver)

    def pid(self, name: str) -> int:
        return 100 + list(self.records).index(name)

    def step(self, times: int = 1, **work: tuple[float, float]) -> None:
        """Let the slots be busy and wait for (percent, percent) of a step, then divide anew."""
        for _ in range(times):
            self.now += EVERY
            for name, (busy, waited) in work.items():
                words = self.words[name]
                words[0] += int(busy * EVERY * 1e7)
                words[1] += int(waited * EVERY * 1e7)
                words[2] += 1
                self._write(name)
            self.compute.step(list(self.records.values()))

    def _write(self, name: str) -> None:
        numbers = pages.layout()
        base = numbers["usage.process"]
        on_card = base + numbers["usage.process.card"]
        with open(self.directories.path(name) / "usage", "r+b") as page:
            page.seek(numbers["usage.high_water"])
            page.write(struct.pack("=Q", 1))
            page.seek(base)
            page.write(struct.pack("=Q", pages.owner_word(self.pid(name), 1)))
            values = [*self.words[name], self.blind.get(name, 0)]
            for word, value in zip(("busy_ns", "throttled_ns", "launches", "blind_ns"), values, strict=True):
                page.seek(on_card + numbers[f"usage.process.card.{word}"])
                page.write(struct.pack("=Q", value))

    def says(self, **permille: int) -> None:
        """Let the driver's next answer be this, as of now."""
        at = int(self.now * 1e6)
        self.driver.answers.append(tuple(Use(self.pid(n), at, p) for n, p in permille.items()))

    def rate(self, name: str, card: str = CARD) -> int:
        """Rate in force, as the page says."""
        numbers = pages.layout()
        index = [part.card for part in self.records[name].slices].index(card)
        with pages.LimitsPage(self.directories.path(name) / "limits") as page:
            at = numbers["limits.card"] + index * numbers["limits.card.bytes"]
            return page.load(at + numbers["limits.card.rate_ppm"])

    def time(self, name: str) -> models.SlotTime:
        return self.compute.measured(self.records[name])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[SlotDirectories] = []

    def make(*records: SlotRecord, ceiling: int = WHOLE) -> Bench:
        driver, shadows = tmp_path / "driver", tmp_path / "shadows"
        for directory in (driver, shadows):
            directory.mkdir()
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                (directory / name).write_bytes(b"stand-in")
        directories = SlotDirectories(tmp_path / "state", shadows, compute_ceiling=ceiling)
        made.append(directories)
        bench = Bench(directories, Driver())
        for record in records:
            bench.add(record, driver)
        bench.step()
        return bench

    yield make
    for directories in made:
        directories.close()


FULL = (100.0, 0.0)


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


# -- trimming


def shares_on_a_card_that_alternates(rates: dict[str, float]) -> dict[str, float]:
    """What slots get when event time has the others' kernels in it: all run in equal turns."""
    at_work = dict.fromkeys(rates, 1.0)
    for _ in range(200):
        # while a slot has work queued it runs 1 / n of the time and pays for all of it
        others = {name: sum(at_work.values()) - at_work[name] for name in rates}
        at_work = {name: min(1.0, rates[name]) for name in rates}
        got = {name: at_work[name] / (1 + others[name]) for name in rates}
    return got


def test_thirty_and_sixty_become_thirty_and_sixty(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    got: dict[str, float] = {}
    for _ in range(100):
        got = shares_on_a_card_that_alternates({name: here.rate(name) / WHOLE for name in ("a", "b")})
        here.says(a=round(1000 * got["a"]), b=round(1000 * got["b"]))
        here.step(1, a=(50.0, 50.0), b=(60.0, 40.0))
    assert got["a"] == pytest.approx(0.30, abs=0.01)
    assert got["b"] == pytest.approx(0.60, abs=0.01)
    assert here.time("a").limit == 300
    assert here.time("a").used == pytest.approx(300, abs=10)


def test_alone_a_slot_is_not_trimmed_by_whole_percents(bench: Any) -> None:
    here = bench(slot("a", 25))
    for _ in range(20):
        here.says(a=240)
        here.step(1, a=(25.0, 75.0))
    assert here.rate("a") == 25 * CORE


def test_one_that_wants_no_more_is_not_raised(bench: Any) -> None:
    here = bench(slot("a", 50), slot("b", 50))
    for _ in range(40):
        here.says(a=100, b=500)
        here.step(1, a=(10.0, 0.0), b=(50.0, 50.0))
    before = here.rate("a")
    for _ in range(40):
        here.says(a=100, b=500)
        here.step(1, a=(10.0, 0.0), b=(50.0, 50.0))
    assert here.rate("a") == before


def test_figures_from_before_a_neighbours_return_correct_nothing(bench: Any) -> None:
    here = bench(slot("a", 30, "elastic"), slot("b", 50, "elastic"))
    for _ in range(10):
        here.says(a=1000)
        here.step(1, a=FULL)
    assert here.rate("a") == WHOLE
    here.step(1, a=(40.0, 60.0), b=(40.0, 60.0))
    before = here.rate("a"), here.rate("b")
    here.says(a=900, b=100)  # of a time when b had hardly begun
    here.step(1, a=(40.0, 60.0), b=(40.0, 60.0))
    assert (here.time("a").limit, here.time("b").limit) == (375, 625)
    assert (here.rate("a"), here.rate("b")) == before


def test_one_that_went_to_rest_is_not_raised_for_what_it_did_before(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    for _ in range(20):
        here.says(a=300, b=600)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    before = here.rate("b")
    for _ in range(10):
        here.says(a=300)
        here.step(1, a=(30.0, 70.0))
    assert here.rate("b") <= before
    assert here.rate("a") == 30 * CORE  # alone, so by its own counters


@pytest.mark.parametrize("lie", [0, 1000])
def test_a_driver_that_lies_halves_a_share_at_most(bench: Any, lie: int) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    for _ in range(100):
        here.says(a=lie, b=600)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    assert 15 * CORE <= here.rate("a") <= MEASURED


# -- a driver that does not answer


def test_a_driver_without_such_figures_is_told_and_counters_go_on(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 30, "elastic"))
    refused = Refusal(Code.UNAVAILABLE, "Not Supported.")
    for _ in range(20):
        here.driver.answers.append(refused)
        here.step(1, a=FULL)
    assert here.rate("a") == WHOLE
    assert "no use by process" in here.time("a").note
    assert here.time("b").note == ""  # it is idle: nothing of it is wrong


def test_a_driver_that_falls_silent_is_told_after_a_while_and_its_correction_fades(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    untrimmed = here.rate("a")
    for _ in range(20):
        here.says(a=200, b=500)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
    assert here.rate("a") > untrimmed + 5 * CORE
    assert here.time("a").note == ""
    here.step(100, a=(30.0, 70.0), b=(60.0, 40.0))
    assert here.rate("a") == pytest.approx(untrimmed, abs=5000)
    assert "not told who uses this card" in here.time("a").note
    here.says(a=200, b=500)
    here.step(2, a=(30.0, 70.0), b=(60.0, 40.0))
    assert here.time("a").note == ""


def test_a_driver_that_hangs_holds_nothing_up(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"), slot("b", 30, "elastic"))
    here.hang = True
    here.step(100, a=FULL)
    assert here.rate("a") == WHOLE
    assert here.driver.asked == []
    assert "not told" in here.time("a").note


def test_a_minute_of_silence_is_told_and_then_forgotten(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 40, "elastic"), slot("c", 20))
    for _ in range(10):
        here.says(a=300, b=700)
        here.step(1, a=(60.0, 40.0), b=FULL)
    for _ in range(round(60 / EVERY)):
        here.step(1, a=(60.0, 40.0), b=FULL)
        assert 30 * CORE <= here.rate("a") < 65 * CORE
        assert here.time("b").limit == 700
    assert "not told who uses this card" in here.time("a").note
    for _ in range(10):
        here.says(a=300, b=700)
        here.step(1, a=(60.0, 40.0), b=FULL)
    assert here.time("a").note == here.time("b").note == ""


@pytest.mark.parametrize("jump", [-500.0, -0.1, 0.0, 5.0, 86_400.0])
def test_a_clock_that_jumps_moves_no_limit(bench: Any, jump: float) -> None:
    here = bench(slot("a", 30), slot("b", 40, "elastic"))
    for after in (0.0, jump):
        here.now += after
        for _ in range(30):
            here.says(a=300, b=700)
            here.step(1, a=(60.0, 40.0), b=FULL)
            assert 30 * CORE <= here.rate("a") <= 80 * CORE
            assert 40 * CORE <= here.rate("b") <= WHOLE
            assert here.time("a").limit == 300
        assert here.time("b").limit == 700
        assert here.rate("a") == pytest.approx(60 * CORE, abs=5 * CORE)


def test_a_process_that_is_stopped_is_named(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench(slot("a", 30), slot("b", 40))
    states = {here.pid("a"): Stat("train", "T", 3, 1), here.pid("b"): Stat("serve", "S", 3, 1)}
    monkeypatch.setattr("gaia_plugin.agent.compute.stat", states.get)
    here.step(1, a=FULL, b=FULL)
    assert here.time("a").note == (
        f"Process {here.pid('a')} (train) is stopped by a signal; `kill -CONT {here.pid('a')}` lets it go on."
    )
    assert here.time("b").note == ""


def test_events_that_fail_are_told_for_a_while(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 40))
    here.blind["a"] = int(here.now * 1e9)
    here.step(1, a=FULL, b=FULL)
    assert here.time("a").note.startswith("The driver refuses the events")
    assert here.time("b").note == ""
    here.step(40, a=FULL, b=FULL)
    assert "events" not in here.time("a").note
    here.blind["a"] = 1 << 63  # nonsense, or of another boot
    here.step(1, a=FULL, b=FULL)
    assert "events" not in here.time("a").note


def test_an_idle_card_is_not_asked_about(bench: Any) -> None:
    here = bench(slot("a", 40, "elastic"))
    here.step(100)
    assert here.driver.asked == []
    assert here.time("a").note == ""


def test_late_samples_count_when_they_come(bench: Any) -> None:
    here = bench(slot("a", 30), slot("b", 60))
    for step in itertools.count():
        if step % 7 == 0:
            here.says(a=210, b=500)
        here.step(1, a=(30.0, 70.0), b=(60.0, 40.0))
        if step == 70:
            break
    assert here.rate("a") > 35 * CORE
    assert here.time("a").note == ""


# -- pages


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
