"""The time as the API server's objects say it."""

from __future__ import annotations

from datetime import UTC, datetime


def now_text() -> str:
    """Return the time of day, RFC 3339 in UTC with microseconds: never the same twice in practice.

    A write that changes nothing leaves the version of an object as it is, and then voids nothing that
    was decided upon that version.
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
