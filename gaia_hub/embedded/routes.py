"""The proxy's table: which prefix of an address goes to which backend.

Pure. A routespec is JupyterHub's: ``/user/ann/`` or, with subdomains, ``host/user/ann/``. Segments
are compared decoded, each by itself, so that ``/user/a%40b/`` and ``/user/a@b/`` are one place and
an encoded slash never divides a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote


@dataclass
class Route:
    """One entry. `target` is a URL without a path; `data` is JupyterHub's own."""

    routespec: str
    target: str
    data: dict[str, Any]
    last_activity: datetime = field(default_factory=lambda: datetime.now(UTC))

    def as_jupyterhub(self) -> dict[str, Any]:
        """Return the entry as `Proxy.get_all_routes` promises it."""
        data = {**self.data, "last_activity": self.last_activity.isoformat()}
        return {"routespec": self.routespec, "target": self.target, "data": data}


_Key = tuple[str, tuple[str, ...]]


class RouteTable:
    """Routes by prefix; the longest that fits wins, one with the host before one without."""

    def __init__(self) -> None:
        self._routes: dict[_Key, Route] = {}

    def add(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        """Add or replace a route."""
        self._routes[_key(routespec)] = Route(routespec, target.rstrip("/"), dict(data))

    def remove(self, routespec: str) -> None:
        """Remove a route; one that is not there is no error."""
        self._routes.pop(_key(routespec), None)

    def get(self, routespec: str) -> Route | None:
        """Return the route of exactly this routespec."""
        return self._routes.get(_key(routespec))

    def all(self) -> dict[str, Route]:
        """Return every route by its routespec."""
        return {route.routespec: route for route in self._routes.values()}

    def find(self, host: str, path: str) -> Route | None:
        """Return the route for a request: `host` as in the header, `path` as sent, still encoded."""
        segments = _segments(path)
        for name in (_host_name(host), ""):
            for length in range(len(segments), -1, -1):
                route = self._routes.get((name, segments[:length]))
                if route is not None:
                    return route
        return None


def _key(routespec: str) -> _Key:
    host, _, path = routespec.partition("/")
    return _host_name(host), _segments(path)


def _host_name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _segments(path: str) -> tuple[str, ...]:
    path = path.partition("?")[0]
    return tuple(unquote(segment) for segment in path.split("/") if segment)
