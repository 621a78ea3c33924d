"""Names of slots: safe in a path and in a URL, and readable back into owner and server.

``alice`` with the unnamed server is ``alice``, with the server ``lab`` it is ``alice--lab``. What
would be unsafe, or could be mistaken for the separator, is written as ``~`` and two hex digits.
"""

from __future__ import annotations

import re
from typing import Final

from gaia_plugin.errors import Code, Refusal

LONGEST: Final = 200
"""Bytes of a slot's name; file systems allow 255, and temporary names need some."""

_SEPARATOR: Final = "--"
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_NAME: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")


def slot_name(owner: str, server: str = "") -> str:
    """Return the name of the slot of `owner`'s `server`.

    Raises:
        Refusal: code ``bad_request``, when the owner is empty or the name would be too long.
    """
    if not owner:
        raise Refusal(Code.BAD_REQUEST, "A slot needs an owner.")
    name = _escape(owner) + (_SEPARATOR + _escape(server) if server else "")
    if len(name) > LONGEST:
        raise Refusal(
            Code.BAD_REQUEST, f"The names of user and server are too long together for a slot: {name[:40]}..."
        )
    return name


def slot_owner(name: str) -> tuple[str, str]:
    """Return the owner and the server that `slot_name` made `name` from.

    Raises:
        ValueError: `name` is not a slot's name.
    """
    owner, _, server = name.partition(_SEPARATOR)
    result = _unescape(owner), _unescape(server)
    try:
        right = slot_name(*result) == name
    except Refusal:
        right = False
    if not right:
        raise ValueError(f"{name!r} is not the name of a slot")
    return result


def safe_name(name: str) -> str:
    """Return `name` if it may be a directory's name below `slots/`.

    Raises:
        Refusal: code ``no_such_slot``; no slot ever has another kind of name.
    """
    if len(name) > LONGEST or _NAME.fullmatch(name) is None:
        raise Refusal(Code.NO_SUCH_SLOT, f"There is no slot {name[:60]!r} on this machine.")
    return name


def _escape(text: str) -> str:
    octets = text.encode("utf-8", "surrogatepass")
    last = len(octets) - 1
    written = []
    for index, octet in enumerate(octets):
        plain = octet in _PLAIN
        if octet == ord("."):
            plain = index > 0  # no hidden file, no "." and no ".."
        elif octet == ord("-"):
            # only the separator has two in a row, whatever stands beside it
            plain = 0 < index < last and octets[index - 1] != octet
        written.append(chr(octet) if plain else f"~{octet:02X}")
    return "".join(written)


def _unescape(text: str) -> str:
    octets = re.sub(
        rb"~([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "replace")
    )
    return octets.decode("utf-8", "replace")
