"""One stream from the agent, told to every browser tab that watches.

A slot's socket takes few connections, so all tabs share one. It is opened for the first tab and closed
after the last: nothing runs while nobody looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from gaia_hub.server.problems import problem
from gaia_plugin.api.client import EventStream, SlotClient
from gaia_plugin.errors import Code, Refusal

FIRST_DELAY: Final = 0.25
LONGEST_DELAY: Final = 5.0
"""Seconds between attempts to reach an agent that is away; doubled from the first to the longest."""


class Subscription:
    """The newest message for one tab. A tab that reads slowly misses old states, never the last."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._message = b""

    def tell(self, message: bytes) -> None:
        """Set the newest message, from any thread."""
        # the loop is closed when the server ends before the thread does
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._set, message)

    def _set(self, message: bytes) -> None:
        self._message = message
        self._changed.set()

    async def next(self, seconds: float) -> bytes | None:
        """Return the newest message not yet read, or None when none came within `seconds`."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return None
        self._changed.clear()
        return self._message


class SlotWatch:
    """Share the agent's stream among subscriptions. Messages are server-sent events as bytes."""

    def __init__(self, client: Callable[[], SlotClient]) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._subscriptions: set[Subscription] = set()
        self._follower: _Follower | None = None
        self._last = b""

    def subscribe(self) -> Subscription:
        """Return a subscription; its first message is the present state. Call it on the loop."""
        subscription = Subscription()
        with self._lock:
            self._subscriptions.add(subscription)
            if self._follower is None:
                self._last = b""
                self._follower = _Follower(self._client, self._tell)
                self._follower.start()
            elif self._last:
                subscription.tell(self._last)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; after the last one the agent's stream is closed."""
        with self._lock:
            self._subscriptions.discard(subscription)
            if self._subscriptions or self._follower is None:
                return
            follower, self._follower = self._follower, None
        follower.stop()

    def _tell(self, follower: _Follower, message: bytes) -> None:
        with self._lock:
            if follower is not self._follower:
                return
            self._last = message
            for subscription in self._subscriptions:
                subscription.tell(message)


class _Follower:
    """The thread that reads the agent's stream, and opens it again when the agent was away."""

    def __init__(self, client: Callable[[], SlotClient], tell: Callable[[_Follower, bytes], None]) -> None:
        self._client = client
        self._tell = tell
        self._stopped = threading.Event()
        self._stream: EventStream | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="gaia-slot-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def _run(self) -> None:
        delay = FIRST_DELAY
        while not self._stopped.is_set():
            try:
                with self._client().events() as stream:
                    self._stream = stream
                    # stop() may have come before there was a stream that it could close
                    if self._stopped.is_set():
                        return
                    for slot in stream:
                        delay = FIRST_DELAY
                        self._tell(self, event("slot", slot))
            except Refusal as refusal:
                self._tell(self, event("problem", problem(refusal)))
            except msgspec.MsgspecError as error:
                self._tell(self, event("problem", problem(Refusal(Code.UNAVAILABLE, str(error)))))
            finally:
                self._stream = None
            self._stopped.wait(delay)
            delay = min(delay * 2, LONGEST_DELAY)


def event(name: str, content: msgspec.Struct) -> bytes:
    """Return one server-sent event. JSON has no line breaks, so one data line holds it."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(content))
