"""A card's UUID as text (``GPU-xxxxxxxx-...``) and as the 16 bytes of ``CUuuid``, in memory order."""

from __future__ import annotations

import re
import sys
import uuid
from typing import Final

_TEXT: Final = re.compile(r"(?:GPU|MIG)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes that the driver gives for the card named `text`.

    Raises:
        ValueError: `text` is not a card's UUID.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not the UUID of a card")
    return uuid.UUID(match[1]).bytes


def uuid_text(octets: bytes) -> str:
    """Return the name of the card whose driver UUID is these 16 bytes."""
    return f"GPU-{uuid.UUID(bytes=octets)}"


def uuid_words(text: str) -> tuple[int, int]:
    """Return the UUID as two words of a page, so that its bytes lie there in memory order."""
    octets = uuid_bytes(text)
    return int.from_bytes(octets[:8], sys.byteorder), int.from_bytes(octets[8:], sys.byteorder)
