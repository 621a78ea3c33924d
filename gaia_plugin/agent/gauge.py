"""The driver's use by process, asked in a thread of its own that may hang without holding anybody up.

A driver may answer late, with nothing, or never. So the agent leaves a request here at each step and
takes what has come by then; it never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Use

EMPTY: Final = 20
"""Answers without a sample, one after the other, after which a card is asked for all that there are."""


class Source(Protocol):
    """What a gauge asks; part of `gaia_plugin.gpu.Gpus`."""

    def utilisation(self, uuid: str, since: int) -> tuple[Use, ...]:
        """Return the samples of a card that are younger than `since`."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What the driver said of one card: its new samples, or why it has none to give."""

    samples: tuple[Use, ...] = ()
    refused: str = ""


class Gauge:
    """Asks in the background. The thread starts with the first request.

    Args:
        source: the driver.
        start: runs a function in the background; another one in tests.
    """

    def __init__(self, source: Source, start: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._source = source
        self._start = _in_thread if start is None else start
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._answers: dict[str, Answer] = {}
        self._since: dict[str, int] = {}
        self._empty: dict[str, int] = {}
        self._busy = False

    def ask(self, cards: Iterable[str]) -> None:
        """Ask about `cards`, unless the driver still owes an answer."""
        with self._lock:
            self._wanted = frozenset(cards)
            if self._busy or not self._wanted:
                return
            self._busy = True
        self._start(self._run)

    def take(self) -> dict[str, Answer]:
        """Return what has come since the last time, by card."""
        with self._lock:
            answers, self._answers = self._answers, {}
            return answers

    @property
    def waiting(self) -> bool:
        """Tell whether the driver owes an answer."""
        return self._busy

    def _run(self) -> None:
        try:
            for uuid in sorted(self._wanted):
                answer = self._asked(uuid)
                with self._lock:
                    self._answers[uuid] = answer
        finally:
            self._busy = False

    def _asked(self, uuid: str) -> Answer:
        since = self._since.get(uuid, 0)
        try:
            samples = self._source.utilisation(uuid, since)
            self._empty[uuid] = 0 if samples else self._empty.get(uuid, 0) + 1
            if since and self._empty[uuid] >= EMPTY:
                samples = self._anew(uuid, since)
        except Refusal as refusal:
            return Answer(refused=refusal.sentence)
        if samples:
            self._since[uuid] = max(sample.at for sample in samples)
        return Answer(samples)

    def _anew(self, uuid: str, since: int) -> tuple[Use, ...]:
        """Ask for everything: drivers go by the day's clock, and once it is set back nothing is young."""
        self._empty[uuid] = 0
        samples = self._source.utilisation(uuid, 0)
        newest = max((sample.at for sample in samples), default=since)
        return samples if newest < since else ()


def _in_thread(run: Callable[[], None]) -> None:
    # a daemon: a driver that hangs for ever must not keep the agent from ending
    threading.Thread(target=run, name="utilisation", daemon=True).start()
