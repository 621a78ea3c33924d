"""Hears of faults of cards, in a thread of its own that may hang without holding anybody up.

Many XIDs are the doing of a program: it ends, and the card is as good as before. After any other the card
gets nothing new until it has been reset, or until the agent starts again; what runs on it is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import structlog

from gaia_plugin.errors import Refusal
from gaia_plugin.gpu import Card, Xid

log = structlog.get_logger(__name__)

HARMLESS: Final = (13, 31, 43, 45, 68, 109)
"""XIDs by which a program's own fault shows: its kernel faulted, hung, or was ended."""

_WAIT: Final = 0.25
"""Seconds of one wait; so long at most the agent's end waits for this thread."""
_PAUSE: Final = 10.0
"""Seconds until a driver that told nothing is asked again."""


class Source(Protocol):
    """Who knows of faults; `gaia_plugin.gpu.nvml.Nvml` does."""

    def xid(self, seconds: float) -> Xid | None:
        """Return the next fault; None when there was none for so long.

        Raises:
            Refusal: the driver does not tell.
        """
        ...


class Alarm:
    """Which cards are sick by what the driver told of them.

    Args:
        source: the driver; called in the thread only.
        harmless: XIDs that make no card sick.
    """

    def __init__(self, source: Source, harmless: Iterable[int] = HARMLESS) -> None:
        self._source = source
        self._harmless = frozenset(harmless)
        self._lock = threading.Lock()
        self._sick: dict[str, str] = {}
        self._away: set[str] = set()
        """Sick cards that did not answer since: when they do, they were reset."""
        self._everywhere = ""
        self._news = False
        self._ended = threading.Event()
        self._said = ""
        # a daemon: a driver that hangs for ever must not keep the agent from ending
        self._thread = threading.Thread(target=self._run, name="alarm", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; a driver that hangs is left alone."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=4 * _WAIT)

    def take(self) -> bool:
        """Tell whether a card fell sick since this was asked the last time."""
        with self._lock:
            news, self._news = self._news, False
            return news

    def troubles(self, cards: Sequence[Card]) -> dict[str, str]:
        """Return a sentence for each of these cards that is sick; one that went and came back is well."""
        with self._lock:
            if self._everywhere:
                self._sick.update({card.uuid: self._everywhere for card in cards})
                self._everywhere = ""
            for card in cards:
                if card.uuid not in self._sick:
                    continue
                if not card.healthy:
                    self._away.add(card.uuid)
                elif card.uuid in self._away:
                    log.info("the card was reset", card=card.uuid)
                    self._away.discard(card.uuid)
                    del self._sick[card.uuid]
            return dict(self._sick)

    def hear(self, xid: Xid) -> None:
        """Take in a fault."""
        if xid.code in self._harmless:
            log.info("a program's fault", card=xid.uuid, xid=xid.code)
            return
        log.error("the card is sick", card=xid.uuid or "not known which", xid=xid.code)
        which = "this card" if xid.uuid else "one of this machine's cards and did not say which"
        sentence = (
            f"The driver reported XID {xid.code} on {which}. Nothing new starts on it until it is reset "
            "(`nvidia-smi --gpu-reset`) or this agent starts again; what runs on it is left alone."
        )
        with self._lock:
            if xid.uuid:
                self._sick[xid.uuid] = sentence
                self._away.discard(xid.uuid)
            else:
                self._everywhere = sentence
            self._news = True

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                xid = self._source.xid(_WAIT)
            except Refusal as refusal:
                if refusal.sentence != self._said:
                    log.warning("no news of faults", why=refusal.sentence)
                    self._said = refusal.sentence
                self._ended.wait(_PAUSE)
                continue
            self._said = ""
            if xid is not None:
                self.hear(xid)
