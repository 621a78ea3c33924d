"""Which headers pass the proxy, and which it adds. Pure; RFC 9110 section 7.6.1 for the first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from multidict import CIMultiDict

_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_WEBSOCKET: Final = frozenset(
    {
        "sec-websocket-accept",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-protocol",
        "sec-websocket-version",
    }
)
_FORWARDED: Final = frozenset({"x-forwarded-proto", "x-forwarded-port", "x-forwarded-host", "forwarded"})


def end_to_end(headers: Iterable[tuple[str, str]]) -> CIMultiDict[str]:
    """Return the headers that are not meant for this connection alone, repetitions kept."""
    pairs = list(headers)
    named = {
        token.strip().lower()
        for key, value in pairs
        if key.lower() == "connection"
        for token in value.split(",")
    }
    dropped = _HOP_BY_HOP | named
    return CIMultiDict((key, value) for key, value in pairs if key.lower() not in dropped)


def for_backend(
    headers: Iterable[tuple[str, str]],
    *,
    peer: str,
    scheme: str,
    host: str,
    port: int,
    trusted: bool,
    websocket: bool = False,
) -> CIMultiDict[str]:
    """Return a request's headers for the backend, with ``X-Forwarded-*``; Host stays as it came.

    What the client claims in ``X-Forwarded-*`` is kept only if `trusted`: it comes from another
    proxy of ours.
    """
    result = end_to_end(headers)
    result.popall("expect", None)  # answered here
    if websocket:
        for name in _WEBSOCKET:
            result.popall(name, None)
    earlier = ", ".join(result.popall("x-forwarded-for", [])) if trusted else ""
    if not trusted:
        result.popall("x-forwarded-for", None)
        for name in _FORWARDED:
            result.popall(name, None)
    result["X-Forwarded-For"] = f"{earlier}, {peer}" if earlier else peer
    result.setdefault("X-Forwarded-Proto", scheme)
    result.setdefault("X-Forwarded-Port", str(port))
    result.setdefault("X-Forwarded-Host", host)
    return result
