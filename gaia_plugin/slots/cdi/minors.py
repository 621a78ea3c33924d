"""Which device node belongs to which card, as the driver tells it in /proc."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc/driver/nvidia/gpus")

_UUID: Final = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)\s*$", re.MULTILINE)
_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


def parse(text: str) -> tuple[str, int] | None:
    """Return UUID and minor number from the ``information`` of a card; None if it lacks one."""
    uuid, minor = _UUID.search(text), _MINOR.search(text)
    return (uuid.group(1), int(minor.group(1))) if uuid and minor else None


def by_uuid(proc: Path = PROC) -> dict[str, int]:
    """Return the minor number of each card that the driver tells of; nothing where there is no driver."""
    found = {}
    for path in sorted(proc.glob("*/information")):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue  # the card fell off the bus meanwhile
        if (card := parse(text)) is not None:
            found[card[0]] = card[1]
    return found
