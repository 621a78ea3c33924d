"""A copy of a collection in memory: what events and lists make of it, and who is told. No transport.

Objects are known by UID. An older version of an object never replaces a newer one, and one that was
reported as gone never comes back by an event that was late; a list that is older than what was seen
(a server restored from a backup) is believed all the same, because nothing else is true any more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, Literal

import structlog

from gaia_plugin.kube.objects import T

log = structlog.get_logger(__name__)

_MOST_GONE: Final = 4096
"""Objects that are remembered as gone: more than arrive late in any order of events."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What happened to an object: `item` is its newest version, `before` the one known until then."""

    kind: Literal["added", "changed", "gone"]
    item: T
    before: T | None


class Replica(Generic[T]):
    """The collection. All methods belong to one event loop; subscribers are called in it at once."""

    def __init__(self) -> None:
        self._items: dict[str, T] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self.store: Mapping[str, T] = MappingProxyType(self._items)
        self.version = ""

    def advance(self, version: str) -> None:
        """Note that everything up to this resourceVersion has been seen."""
        if version and not _older(version, self.version):
            self.version = version

    def put(self, item: T) -> None:
        """Take in an object as an event or a write's answer shows it."""
        uid, version = item.metadata.uid, item.metadata.version
        before = self._items.get(uid)
        if before is not None and not _older(before.metadata.version, version):
            return
        if uid in self._gone and not _older(self._gone[uid], version):
            return
        self._gone.pop(uid, None)
        self._set(uid, item, before)

    def drop(self, item: T) -> None:
        """Take in that an object is gone; `item` as the event shows it."""
        uid, version = item.metadata.uid, item.metadata.version
        before = self._items.get(uid)
        if before is not None and _older(version, before.metadata.version):
            return
        self._remember_gone(uid, version)
        if before is not None:
            self._unset(uid, before, item)

    def replace(self, items: Iterable[T], version: str, unread: frozenset[str] = frozenset()) -> None:
        """Take in a whole list of the moment `version`: what is not in it is gone.

        `unread` are UIDs that are in the list but could not be read: they stay as they are known.
        """
        restored = _older(version, self.version)
        if restored:
            log.warning("the API server's history went back", seen=self.version, listed=version)
            self._gone.clear()
        listed = {item.metadata.uid: item for item in items}
        for uid, known in list(self._items.items()):
            # What a write's answer showed may be newer than the list.
            newer = not restored and _older(version, known.metadata.version)
            if uid not in listed and uid not in unread and not newer:
                self._remember_gone(uid, version)
                self._unset(uid, known, known)
        for uid, item in listed.items():
            if restored:
                self._set(uid, item, self._items.get(uid))
            else:
                self.put(item)
        self.version = version

    def subscribe(self, told: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Call `told` for every object there is and then for every change; return what ends that.

        It is called in the event loop and must not wait; an exception in it is logged.
        """
        for item in list(self._items.values()):
            _tell(told, Change("added", item, None))
        self._subscribers.append(told)

        def end() -> None:
            if told in self._subscribers:
                self._subscribers.remove(told)

        return end

    async def wait_for(self, uid: str, timeout: float, until: Callable[[T], bool] | None = None) -> T | None:
        """Return the object as soon as it is known (and `until` holds of it).

        None: not within `timeout` seconds, or it is gone and will not come.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            item = self._items.get(uid)
            if item is not None and (until is None or until(item)):
                return item
            if item is None and uid in self._gone:
                return None
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(uid, set()).add(woken)
            try:
                async with asyncio.timeout_at(deadline):
                    await woken
            except TimeoutError:
                return None
            finally:
                waiting = self._waiting.get(uid, set())
                waiting.discard(woken)
                if not waiting:
                    self._waiting.pop(uid, None)

    def _set(self, uid: str, item: T, before: T | None) -> None:
        self._items[uid] = item
        self._tell_all(uid, Change("added" if before is None else "changed", item, before))

    def _unset(self, uid: str, before: T, item: T) -> None:
        del self._items[uid]
        self._tell_all(uid, Change("gone", item, before))

    def _remember_gone(self, uid: str, version: str) -> None:
        self._gone[uid] = version
        self._gone.move_to_end(uid)
        while len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)

    def _tell_all(self, uid: str, change: Change[T]) -> None:
        for woken in self._waiting.get(uid, ()):
            if not woken.done():
                woken.set_result(None)
        for told in list(self._subscribers):
            _tell(told, change)


def _tell(told: Callable[[Change[T]], None], change: Change[T]) -> None:
    try:
        told(change)
    except Exception:  # one that fails must not blind the others, nor end the watch
        log.exception("a subscriber failed", change=change.kind, name=change.item.metadata.name)


def _older(version: str, other: str) -> bool:
    """Tell whether `version` is certainly older than `other`; versions that are no numbers never are."""
    if not (version.isascii() and version.isdigit() and other.isascii() and other.isdigit()):
        return False
    return int(version) < int(other)
