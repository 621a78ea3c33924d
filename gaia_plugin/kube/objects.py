"""What all objects of the API server have in common, and how lists and events of them are decoded."""

from __future__ import annotations

from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

import msgspec


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What every object has. `version` is its resourceVersion."""

    name: str
    uid: str
    namespace: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")
    deleted: str | None = msgspec.field(default=None, name="deletionTimestamp")
    annotations: dict[str, str] | None = None


class HasMetadata(Protocol):
    """An object of the API server."""

    @property
    def metadata(self) -> Metadata:
        """Return its metadata."""


T = TypeVar("T", bound=HasMetadata)


class Kind(Protocol[T]):
    """What is to be known of one kind of objects: where they are, their type, what is kept of each."""

    @property
    def path(self) -> str:
        """Return the path of the collection."""

    @property
    def type(self) -> type[T]:
        """Return the type that objects are decoded to."""

    def keep(self, item: T, /) -> T | None:
        """Drop what is not needed from an object just decoded; None: keep nothing of it."""


@runtime_checkable
class Salvages(Protocol):
    """A `Kind` of which an object that is odd in part is read all the same."""

    def salvage(self, raw: bytes | msgspec.Raw, /) -> Any:
        """Return what can be read of an object; raises `msgspec.DecodeError` if too little."""


class Undecodable(Exception):
    """An object whose fields are not of the types known; `metadata` is None where not even that is."""

    def __init__(self, why: str, metadata: Metadata | None) -> None:
        super().__init__(why)
        self.metadata = metadata


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


I = TypeVar("I")  # noqa: E741


class _Page(msgspec.Struct, Generic[I], frozen=True):
    metadata: _ListMetadata = _ListMetadata()
    items: list[I] | None = None


class Event(msgspec.Struct, frozen=True):
    """One line of a watch; `object` is decoded by what `type` says it is."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Bare(msgspec.Struct, frozen=True):
    metadata: Metadata


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _ListMetadata = _ListMetadata()


_EVENT: Final = msgspec.json.Decoder(Event)
_BARE: Final = msgspec.json.Decoder(_Bare)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)
_RAW_PAGE: Final = msgspec.json.Decoder(_Page[msgspec.Raw])


def decode_event(line: bytes) -> Event:
    """Return what kind of event a line is.

    Raises:
        msgspec.DecodeError: the line is no event.
    """
    return _EVENT.decode(line)


def version_of(raw: bytes | msgspec.Raw) -> str:
    """Return the resourceVersion in any object (a bookmark has nothing else); empty if there is none."""
    try:
        return _VERSIONED.decode(raw).metadata.resource_version
    except msgspec.DecodeError:
        return ""


class Decoder(Generic[T]):
    """Decodes one kind of objects, one by one or a page at a time."""

    def __init__(self, kind: Kind[T]) -> None:
        self._kind = kind
        self._one: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind.type)
        self._page: msgspec.json.Decoder[_Page[T]] = msgspec.json.Decoder(_Page[kind.type])  # type: ignore[name-defined]

    def one(self, raw: bytes | msgspec.Raw) -> tuple[T, bool]:
        """Return an object and whether it is one to keep.

        Raises:
            Undecodable: a field that Gaia reads is not of its type.
        """
        try:
            item = self._decoded(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Undecodable(str(error), _bare(raw)) from error
        kept = self._kind.keep(item)
        return (item, False) if kept is None else (kept, True)

    def _decoded(self, raw: bytes | msgspec.Raw) -> T:
        try:
            return self._one.decode(raw)
        except msgspec.ValidationError:
            if not isinstance(self._kind, Salvages):
                raise
            return cast("T", self._kind.salvage(raw))

    def page(self, body: bytes) -> tuple[list[T], list[Undecodable], str]:
        """Return the objects of a page that are kept, what could not be decoded, and the list's version.

        Raises:
            msgspec.DecodeError: the body is no list.
        """
        faults: list[Undecodable] = []
        try:
            page = self._page.decode(body)
        except msgspec.ValidationError:
            # One object that is odd must not hide the others: look at each.
            return self._one_by_one(body)
        items = [kept for item in page.items or () if (kept := self._kind.keep(item)) is not None]
        return items, faults, page.metadata.resource_version

    def _one_by_one(self, body: bytes) -> tuple[list[T], list[Undecodable], str]:
        items: list[T] = []
        faults: list[Undecodable] = []
        page = _RAW_PAGE.decode(body)
        for raw in page.items or ():
            try:
                item, kept = self.one(raw)
            except Undecodable as fault:
                faults.append(fault)
            else:
                if kept:
                    items.append(item)
        return items, faults, page.metadata.resource_version


def _bare(raw: bytes | msgspec.Raw) -> Metadata | None:
    try:
        return _BARE.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
