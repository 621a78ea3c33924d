"""The HTTP side. kube-scheduler takes anything but 200 for a failure of the whole, so everything is 200."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gaia_plugin.extender import wire
from gaia_plugin.extender.service import Service

PREFIX: Final = "/scheduler"
LARGEST_BODY: Final = 64 << 20
"""Bytes; 5,000 whole nodes are some 30 MiB, their names 100 KiB."""

_JSON: Final = "application/json"


class _TooLarge(Exception):
    pass


def make_app(service: Service) -> Starlette:
    """Return the application: the four verbs below `PREFIX`, ``/livez`` and ``/readyz``."""

    async def answer_bind(body: bytes) -> bytes:
        return await service.bind(body)

    return Starlette(
        routes=[
            _verb("filter", _now(service.filter), wire.filtered([], {}, {}, error=_LARGE)),
            _verb("prioritize", _now(service.prioritize), wire.prioritized({})),
            _verb("preempt", _now(service.preempt), wire.preempted({})),
            _verb("bind", answer_bind, wire.bound(_LARGE)),
            Route("/livez", _alive, methods=["GET"]),
            Route("/readyz", _ready(service), methods=["GET"]),
        ]
    )


_LARGE: Final = "Gaia's extender was sent more than it reads."
_Answer = Callable[[bytes], Awaitable[bytes]]


def _now(answer: Callable[[bytes], bytes]) -> _Answer:
    async def answered(body: bytes) -> bytes:
        return answer(body)

    return answered


def _verb(name: str, answer: _Answer, too_large: bytes) -> Route:
    async def handle(request: Request) -> Response:
        try:
            body = await _body(request)
        except _TooLarge:
            return Response(too_large, media_type=_JSON)
        except ClientDisconnect:
            return Response(b"", media_type=_JSON)
        return Response(await answer(body), media_type=_JSON)

    return Route(f"{PREFIX}/{name}", handle, methods=["POST"])


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise _TooLarge
        parts.append(part)
    return b"".join(parts)


async def _alive(request: Request) -> Response:
    return PlainTextResponse("alive\n")


def _ready(service: Service) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        if service.synced():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("the cluster has not been read yet\n", status_code=503)

    return handle
