"""Request bodies, read strictly: what is not exactly JSON of the right form is refused in words.

Python's own decoder takes NaN, keeps the last of two equal keys and recurses as deep as it is told
to; msgspec skips duplicate keys as well. Both are closed here before a model sees the value.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from gaia_plugin.errors import Code, Refusal

LARGEST_BODY: Final = 64 << 10
DEEPEST: Final = 8
LONGEST_NUMBER: Final = 20

_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS: Final = re.compile(r"[\[\]{}]")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_GENERATION: Final = re.compile(r'"([0-9]{1,18})"', re.ASCII)

_T = TypeVar("_T")


def _bad(sentence: str) -> Refusal:
    return Refusal(Code.BAD_REQUEST, sentence)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise _bad("The body names a key twice; write each key once.")
    return seen


def _no_constant(name: str) -> NoReturn:
    raise _bad(f"{name} is not a number that JSON knows.")


def _short(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise Refusal(
            Code.INVALID_AMOUNT, f"A number of {len(digits)} digits is no amount that a card could have."
        )
    return int(digits)


def _check_depth(text: str) -> None:
    depth = 0
    for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
        depth += 1 if bracket.group() in "[{" else -1
        if depth > DEEPEST:
            raise _bad(f"The body is nested more than {DEEPEST} deep; no request of Gaia's is.")


def _check_characters(text: str, value: object) -> None:
    """Refuse half of a character: JSON can write one, and no answer could repeat it."""
    if _SURROGATE.search(text) is None:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _bad("The body has half of a character in it (a lone surrogate); write whole ones.") from None


def decode(body: bytes, model: type[_T] | Any) -> _T:
    """Return `body` as `model`.

    Raises:
        Refusal: ``bad_request`` (not JSON, doubled keys, wrong fields or types) or
            ``invalid_amount`` (a number with too many digits).
    """
    try:
        text = body.decode("utf-8")
        _check_depth(text)
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_short)
        _check_characters(text, value)
    except (ValueError, RecursionError) as error:
        raise _bad(f"The body is not JSON: {_brief(error)}.") from error
    try:
        converted: _T = msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise _bad(f"The body is not what this request takes: {_brief(error)}.") from error
    return converted


def _brief(error: Exception) -> str:
    return str(error)[:200].rstrip(".")


def encode(value: object) -> bytes:
    """Return `value` as JSON."""
    return msgspec.json.encode(value)


def parse_generation(header: str | None) -> int | None:
    """Return the generation in an If-Match header; None when it is absent or ``*``.

    Raises:
        Refusal: ``bad_request``, for anything but one strong tag with a number in it.
    """
    if header is None or header.strip() == "*":
        return None
    match = _GENERATION.fullmatch(header.strip())
    if match is None:
        raise _bad('If-Match takes the generation in quotes, such as "7", as ETag gave it.')
    return int(match.group(1))
