"""Reading JSON into a type although parts of it are odd: those parts are left out, and named. Pure."""

from __future__ import annotations

import types
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T")

_LONGEST: Final = 200
"""Characters that are told of what is odd."""


def read(value: object, kind: type[T], where: str, faults: list[str]) -> T:
    """Return `value`, decoded JSON, as `kind`; each part that was left out adds a sentence to `faults`.

    A field that is odd gets its default; an item of a list that lacks what it must have is dropped. A
    word that is none of those known is kept as it is: a newer version may say more of a thing that
    counts all the same. `where` is how sentences begin.

    Raises:
        msgspec.ValidationError: what has no default cannot be read.
    """
    return _read(value, kind, where, faults)  # type: ignore[no-any-return]


def _read(value: object, kind: Any, where: str, faults: list[str]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        if get_origin(kind) is Literal and isinstance(value, str):
            faults.append(f"{where}: {value[:_LONGEST]!r} is none of {', '.join(get_args(kind))}")
            return value
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
            return _struct(value, kind, where, faults)
        if get_origin(kind) is tuple and isinstance(value, list):
            return _items(value, get_args(kind)[0], where, faults)
        if get_origin(kind) in (Union, types.UnionType) and isinstance(value, dict):
            # of several types one at most is an object here; the others are None and plain values
            for each in get_args(kind):
                if isinstance(each, type) and issubclass(each, msgspec.Struct):
                    return _struct(value, each, where, faults)
        raise msgspec.ValidationError(f"{where}: {str(error)[:_LONGEST]}") from error


def _struct(
    value: dict[str, object], kind: type[msgspec.Struct], where: str, faults: list[str]
) -> msgspec.Struct:
    parts: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in value:
            if field.required:
                raise msgspec.ValidationError(f"{where}.{field.encode_name} is missing")
            continue
        try:
            parts[field.name] = _read(
                value[field.encode_name], field.type, f"{where}.{field.encode_name}", faults
            )
        except msgspec.ValidationError as error:
            if field.required:
                raise
            faults.append(str(error))
    return kind(**parts)


def _items(value: list[object], kind: Any, where: str, faults: list[str]) -> tuple[Any, ...]:
    found = []
    for at, each in enumerate(value):
        try:
            found.append(_read(each, kind, f"{where}[{at}]", faults))
        except msgspec.ValidationError as error:
            faults.append(str(error))
    return tuple(found)
