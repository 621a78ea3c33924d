"""Keeps a copy of a collection of the API server: a list in pages, then a watch that goes on from it.

The watch is taken up where it ended. The list is made anew only when the server has forgotten that
place (410), refuses it for good, or sends what cannot be read. Every attempt after a failure waits
longer, by chance within bounds, so that a thousand nodes do not come back in one second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from random import SystemRandom
from typing import Final, Generic, Protocol, cast

import msgspec
import structlog

from gaia_plugin.kube.errors import NO_ANSWER, ApiError, from_body
from gaia_plugin.kube.objects import Decoder, Kind, T, Undecodable, decode_event, version_of
from gaia_plugin.kube.replica import Change, Replica

log = structlog.get_logger(__name__)

STEADY_SECONDS: Final = 5.0
"""A watch that lasted so long was a good one: the next failure is the first again."""

_WATCH_SECONDS: Final = 300
_REFUSALS: Final = 3
"""After so many refusals in a row to watch from a version, the version is held to be the reason."""


class Source(Protocol):
    """Where lists and watches come from; `gaia_plugin.kube.client.Api` is one."""

    def list_pages(
        self, path: str, parameters: Mapping[str, str | int] | None = None, *, limit: int = 500
    ) -> AsyncIterator[bytes]:
        """Yield the pages of a list."""

    def watch(
        self, path: str, parameters: Mapping[str, str | int] | None = None, *, seconds: int = 300
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a watch."""


@dataclass
class Backoff:
    """How long to wait before the next attempt: doubled each time up to `most` seconds, by chance.

    Each wait is between half of that and all of it. `chance` gives numbers from 0 to 1.
    """

    first: float = 0.2
    most: float = 15.0
    chance: Callable[[], float] = SystemRandom().random
    _failures: int = 0

    def next(self) -> float:
        """Return the seconds to wait now, and count one failure more."""
        # The power is bounded too: after a month of failures 2.0**n would overflow.
        longest = min(self.most, self.first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return longest * (0.5 + 0.5 * self.chance())

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self._failures = 0


class Reflector(Generic[T]):
    """A copy of all objects of a kind, as true as the API server's last word.

    Args:
        source: an `Api`.
        kind: which objects, such as `Pods()`.
        field_selector: which of them, such as ``spec.nodeName=node1``.
        page: objects in one page of a list.
        backoff, pause, clock: how failures are waited out; for tests.
    """

    def __init__(
        self,
        source: Source,
        kind: Kind[T],
        *,
        field_selector: str = "",
        page: int = 500,
        backoff: Backoff | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._path = kind.path
        self._keep = kind.keep
        self._decoder: Decoder[T] = Decoder(kind)
        self._parameters: dict[str, str | int] = {"fieldSelector": field_selector} if field_selector else {}
        self._page = page
        self._backoff = backoff or Backoff()
        self._pause = pause
        self._clock = clock
        self._replica: Replica[T] = Replica()
        self._listed = False
        self._refusals = 0
        self._trouble: ApiError | None = None
        self.synced = asyncio.Event()
        """Set once the first list is in, and for ever: later the copy may be old, never empty."""

    @property
    def store(self) -> Mapping[str, T]:
        """Return the objects by UID: a view that follows, not a copy."""
        return self._replica.store

    @property
    def trouble(self) -> ApiError | None:
        """Return why the copy may be old now; None while the watch is up."""
        return self._trouble

    def observe(self, item: T) -> None:
        """Take in what a write of our own was answered with, before its event arrives."""
        kept = self._keep(item)
        if kept is not None:
            self._replica.put(kept)

    def subscribe(self, told: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Call `told` for every object there is and every change; see `Replica.subscribe`."""
        return self._replica.subscribe(told)

    async def wait_for(self, uid: str, timeout: float, until: Callable[[T], bool] | None = None) -> T | None:
        """Return the object as soon as it is known; None: not in `timeout` seconds, or it is gone."""
        return await self._replica.wait_for(uid, timeout, until)

    async def run(self) -> None:
        """Keep the copy true until cancelled; whatever the API server does."""
        while True:
            begun = self._clock()
            failure: ApiError | None = None
            try:
                if not self._listed:
                    await self._list()
                    begun = self._clock()
                await self._follow()
            except ApiError as error:
                failure = error
                self._note(error)
            except Exception as error:  # a bug of ours must not leave the copy to grow old in silence
                log.exception("the reflector failed; listing again", path=self._path)
                self._listed = False
                self._trouble = failure = ApiError(NO_ANSWER, "", repr(error), request=self._path)
            if self._clock() - begun >= STEADY_SECONDS:
                self._backoff.reset()
                if failure is None:
                    continue
            wait = self._backoff.next()
            await self._pause(max(wait, (failure.retry_after if failure else None) or 0.0))

    async def _list(self) -> None:
        items: list[T] = []
        unread: set[str] = set()
        version = ""
        pages = self._source.list_pages(self._path, self._parameters, limit=self._page)
        async with _closing(pages) as bodies:
            async for body in bodies:
                try:
                    more, faults, version = self._decoder.page(body)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise ApiError(
                        NO_ANSWER, "", f"a list that is none: {error}", request=self._path
                    ) from error
                items.extend(more)
                unread.update(fault.metadata.uid for fault in faults if fault.metadata)
                for fault in faults:
                    self._log_unread(fault)
        if not version:
            # An answer that is JSON but no list would otherwise say that everything is gone.
            raise ApiError(NO_ANSWER, "", "a list without a resourceVersion.", request=self._path)
        self._replica.replace(items, version, frozenset(unread))
        self._listed, self._refusals = True, 0
        if not self.synced.is_set():
            log.info("listed", path=self._path, objects=len(items))
            self.synced.set()

    async def _follow(self) -> None:
        """Watch from where the copy stands until the server ends it.

        Raises:
            ApiError: refused or broken off; `_listed` is False then if a new list is needed.
        """
        parameters = {
            **self._parameters,
            "resourceVersion": self._replica.version,
            "allowWatchBookmarks": "true",
        }
        seconds = int(_WATCH_SECONDS * (1 + self._backoff.chance()))
        async with _closing(self._source.watch(self._path, parameters, seconds=seconds)) as lines:
            async for line in lines:
                if line:
                    self._take(line)
                    self._refusals = 0
                    self._backoff.reset()
                self._recovered()

    def _take(self, line: bytes) -> None:
        """Apply one event to the copy."""
        try:
            event = decode_event(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._listed = False
            raise ApiError(NO_ANSWER, "", f"an event that is none: {error}", request=self._path) from error
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                self._replica.advance(self._apply(event.type, event.object))
            case "BOOKMARK":
                self._replica.advance(version_of(event.object))
            case "ERROR":
                raise from_body(event.object, status=0, request=f"watch {self._path}")
            case other:
                log.warning("an event of an unknown type", path=self._path, type=other[:40])

    def _apply(self, kind: str, raw: msgspec.Raw) -> str:
        """Apply what happened to one object; return the version at which it did."""
        try:
            item, kept = self._decoder.one(raw)
        except Undecodable as fault:
            self._log_unread(fault)
            return version_of(raw)
        if kind == "DELETED" or not kept:
            # An object that was never kept is not worth remembering as gone.
            if kept or item.metadata.uid in self.store:
                self._replica.drop(item)
        else:
            self._replica.put(item)
        return item.metadata.version

    def _note(self, error: ApiError) -> None:
        """Decide what an error means for the next attempt, and say so once."""
        if error.status in (500, 504):
            # How a server answers that does not know this version yet: one restored from a backup.
            self._refusals += 1
        if error.expired or error.status == 400 or self._refusals >= _REFUSALS:
            self._listed, self._refusals = False, 0
        if error.expired:
            log.info("the watch is too far behind; listing again", path=self._path)
        elif self._trouble is None:
            log.warning("the watch broke", path=self._path, error=str(error))
        self._trouble = error

    def _recovered(self) -> None:
        if self._trouble is not None:
            log.info("the watch is up again", path=self._path)
            self._trouble = None

    def _log_unread(self, fault: Undecodable) -> None:
        name = fault.metadata.name if fault.metadata else "?"
        log.warning(
            "an object cannot be read; its last version stays", path=self._path, name=name, why=str(fault)
        )


def _closing(lines: AsyncIterator[bytes]) -> aclosing[AsyncGenerator[bytes, None]]:
    """Close a generator where it is left, not when it is collected: a connection hangs on it."""
    return aclosing(cast("AsyncGenerator[bytes, None]", lines))
