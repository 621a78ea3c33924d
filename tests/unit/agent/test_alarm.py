"""Faults that the driver tells of: which make a card sick, until when, and what people are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from gaia_plugin.agent.alarm import HARMLESS, Alarm
from gaia_plugin.agent.readings import Reader, inventory
from gaia_plugin.agent.settings import read_settings
from gaia_plugin.errors import Code, Refusal, Unusable
from gaia_plugin.gpu import Card, Topology, Xid
from gaia_plugin.units import GIB

A, B = "GPU-a", "GPU-b"


@dataclass
class Driver:
    """Two cards, and the faults that a test lets them have."""

    faults: Queue[Xid | Refusal] = field(default_factory=Queue)
    lost: set[str] = field(default_factory=set)
    hangs: threading.Event | None = None

    def xid(self, seconds: float) -> Xid | None:
        if self.hangs is not None:
            self.hangs.wait()
        try:
            fault = self.faults.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(fault, Refusal):
            raise fault
        return fault

    def cards(self) -> tuple[Card, ...]:
        found = (Card(uuid, i, "Played", 16 * GIB, 0, "", None) for i, uuid in enumerate((A, B)))
        return tuple(
            replace(card, healthy=False, trouble="the driver has lost it") if card.uuid in self.lost else card
            for card in found
        )

    def topology(self) -> Topology:
        return Topology()


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def alarm(driver: Driver) -> Iterator[Alarm]:
    alarm = Alarm(driver)
    yield alarm
    alarm.close()


def sick(driver: Any, alarm: Alarm) -> dict[str, str]:
    found = inventory(driver, alarm)
    assert {card.uuid for card in found.cards if not card.healthy} == set(found.troubles)
    return dict(found.troubles)


@pytest.mark.parametrize("code", HARMLESS)
def test_the_fault_of_a_program_makes_no_card_sick(driver: Driver, alarm: Alarm, code: int) -> None:
    alarm.hear(Xid(A, code))
    assert not alarm.take()
    assert sick(driver, alarm) == {}


@pytest.mark.parametrize("code", [48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 999])
def test_any_other_makes_its_card_sick_and_is_named(driver: Driver, alarm: Alarm, code: int) -> None:
    alarm.hear(Xid(A, code))
    assert alarm.take()
    assert not alarm.take()
    (told,) = sick(driver, alarm).items()
    assert told[0] == A
    assert f"XID {code} " in told[1]
    assert "reset" in told[1]


def test_a_card_that_went_and_came_back_was_reset(driver: Driver, alarm: Alarm) -> None:
    alarm.hear(Xid(A, 79))
    assert set(sick(driver, alarm)) == {A}
    driver.lost = {A}
    assert "has lost it" in sick(driver, alarm)[A]
    driver.lost = set()
    assert sick(driver, alarm) == {}
    alarm.hear(Xid(A, 79))
    assert set(sick(driver, alarm)) == {A}


def test_a_fault_of_nobody_knows_which_card_counts_for_all(driver: Driver, alarm: Alarm) -> None:
    alarm.hear(Xid("", 79))
    assert set(sick(driver, alarm)) == {A, B}


def test_the_list_is_the_operators(driver: Driver) -> None:
    alarm = Alarm(driver, [79])
    alarm.hear(Xid(A, 79))
    alarm.hear(Xid(B, 13))
    assert set(sick(driver, alarm)) == {B}


def test_the_thread_takes_in_what_comes(driver: Driver, alarm: Alarm, polled: Any) -> None:
    alarm.start()
    reader = Reader(driver, None, alarm)  # type: ignore[arg-type]
    driver.faults.put(Xid(B, 31))
    driver.faults.put(Xid(B, 48))
    polled(reader.alarmed)
    assert set(reader.inventory().troubles) == {B}
    assert not reader.alarmed()


def test_a_driver_that_tells_nothing_is_asked_again_and_said_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, polled: Any
) -> None:
    monkeypatch.setattr("gaia_plugin.agent.alarm._PAUSE", 0.0)
    alarm = Alarm(driver)
    alarm.start()
    for _ in range(3):
        driver.faults.put(Refusal(Code.UNAVAILABLE, "Not Supported."))
    driver.faults.put(Xid(A, 48))
    polled(alarm.take)
    alarm.close()


def test_a_driver_that_hangs_holds_nobody_up(driver: Driver) -> None:
    driver.hangs = threading.Event()
    alarm = Alarm(driver)
    alarm.start()
    assert sick(driver, alarm) == {}
    alarm.close()
    assert alarm._thread.is_alive()
    driver.hangs.set()
    alarm._thread.join()


def test_the_list_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"node_name": "n", "state": tmp_path}
    assert read_settings(**given).harmless_xids == HARMLESS
    monkeypatch.setenv("GAIA_HARMLESS_XIDS", "13, 31,94")
    assert read_settings(**given).harmless_xids == (13, 31, 94)
    monkeypatch.setenv("GAIA_HARMLESS_XIDS", "")
    assert read_settings(**given).harmless_xids == ()
    monkeypatch.setenv("GAIA_HARMLESS_XIDS", "thirteen")
    with pytest.raises(Unusable, match="GAIA_HARMLESS_XIDS"):
        read_settings(**given)
