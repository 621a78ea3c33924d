"""Asking the driver for use by process, without ever waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gaia_plugin.agent.gauge import EMPTY, Answer, Gauge
from gaia_plugin.errors import Code, Refusal
from gaia_plugin.gpu import Use


class Slow:
    """A driver that answers when it is let."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun = threading.Event()
        self.asked: list[tuple[str, int]] = []

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        self.asked.append((uuid, since))
        self.begun.set()
        assert self.go.wait(20)
        if uuid == "bad":
            raise Refusal(Code.UNAVAILABLE, "Not Supported.")
        return (Use(7, since + 10, 500),)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = threading.Event()
    for _ in range(2000):
        if holds():
            return
        deadline.wait(0.01)
    pytest.fail("did not happen in time")


def test_nobody_waits_for_a_driver_that_takes_its_time() -> None:
    driver = Slow()
    gauge = Gauge(driver)
    gauge.ask(["a", "bad"])
    assert driver.begun.wait(20)
    for _ in range(50):
        gauge.ask(["a", "bad"])  # one question at a time, however long it takes
        assert gauge.take() == {}
    driver.go.set()
    wait_until(lambda: not gauge.waiting)
    assert gauge.take() == {"a": Answer((Use(7, 10, 500),)), "bad": Answer(refused="Not Supported.")}
    assert gauge.take() == {}
    assert driver.asked == [("a", 0), ("bad", 0)]
    gauge.ask(["a"])
    wait_until(lambda: not gauge.waiting)
    assert driver.asked[-1] == ("a", 10)  # only what is younger than the youngest known


def test_a_thread_that_hangs_for_ever_keeps_no_process_from_ending() -> None:
    driver = Slow()
    gauge = Gauge(driver)
    gauge.ask(["a"])
    assert driver.begun.wait(20)
    (thread,) = [each for each in threading.enumerate() if each.name == "utilisation"]
    assert thread.daemon
    driver.go.set()
    thread.join(20)


def test_without_a_question_there_is_no_thread() -> None:
    gauge = Gauge(Slow(), lambda run: pytest.fail("started"))
    gauge.ask([])
    assert gauge.take() == {}


def test_a_clock_of_the_driver_that_is_set_back_is_followed() -> None:
    now = 10_000

    class Driver:
        def utilisation(self, _uuid: str, since: int) -> tuple[Use, ...]:
            return (Use(7, now, 500),) if now > since else ()

    gauge = Gauge(Driver(), lambda run: run())
    gauge.ask(["a"])
    assert gauge.take()["a"].samples
    for _ in range(3 * EMPTY):  # an idle card: its last sample is not told again
        gauge.ask(["a"])
        assert gauge.take()["a"].samples == ()
    now = 400
    came = []
    for _ in range(EMPTY + 1):
        gauge.ask(["a"])
        came += gauge.take()["a"].samples
    assert came == [Use(7, 400, 500)]
    now = 500
    gauge.ask(["a"])
    assert gauge.take()["a"].samples == (Use(7, 500, 500),)
