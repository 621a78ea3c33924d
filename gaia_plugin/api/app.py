"""The two ASGI applications: one per slot socket, one for the operator socket.

The socket is the identity: the application behind a slot's socket knows its slot and no other.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gaia_plugin.api import codec, models, pace, problems
from gaia_plugin.api.endpoints import ENDPOINTS, Endpoint, Where
from gaia_plugin.api.node import Node
from gaia_plugin.errors import Code, Refusal

BODY_TIMEOUT: Final = 5.0
COMMENT_EVERY: Final = 15.0
LOOK_EVERY: Final = 0.5
"""Seconds between two looks at what a watched slot uses; changes of its amounts wake at once."""

_POD: Final = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+", re.ASCII)
_LONGEST_POD: Final = 63 + 1 + 253

log = structlog.get_logger(__name__)
Handler = Callable[[Request], Awaitable[Response]]
Heard = Callable[[str], None]


def _unheard(_: str) -> None:
    """Nobody counts refusals."""


class TooLarge(Exception):
    """The body is larger than `codec.LARGEST_BODY`."""


async def _body(request: Request) -> bytes:
    """Return the whole body. Read in pieces, so that an endless one is dropped at its limit."""
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in request.stream():
                parts += part
                if len(parts) > codec.LARGEST_BODY:
                    raise TooLarge
    except TimeoutError:
        raise Refusal(
            Code.BAD_REQUEST, f"The body did not arrive within {BODY_TIMEOUT:.0f} seconds."
        ) from None
    return bytes(parts)


def _pod_of(request: Request) -> str:
    """Return the pod that an explanation is asked of: namespace/name, and nothing else."""
    given = request.query_params.getlist("pod")
    if len(given) != 1 or len(given[0]) > _LONGEST_POD or _POD.fullmatch(given[0]) is None:
        raise Refusal(Code.BAD_REQUEST, "Name one pod as namespace/name, such as ?pod=default/training.")
    return given[0]


def _problem_response(problem: models.Problem, headers: dict[str, str] | None = None) -> Response:
    return Response(codec.encode(problem), problem.status, headers, problems.MEDIA_TYPE)


def _answer(value: Any, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store"}
    slot = getattr(value, "slot", None)
    if isinstance(value, models.Slot):
        slot = value
    if isinstance(slot, models.Slot):
        headers["ETag"] = f'"{slot.generation}"'
    return Response(codec.encode(value), status, headers, "application/json")


class Operations:
    """The handlers, by the names in `ENDPOINTS`. `slot` is set behind a slot's socket."""

    def __init__(self, node: Node, slot: str | None, refused: Heard = _unheard) -> None:
        self._node = node
        self._slot = slot
        self._limit = pace.resizes()
        self._heard = refused

    def slot_of(self, request: Request) -> str | None:
        """Return the slot that the request is about, if it is about one."""
        if self._slot is not None:
            return self._slot
        name: str | None = request.path_params.get("slot")
        return name

    async def call(self, endpoint: Endpoint, request: Request) -> Response:
        """Answer `request`; raises Refusal, TooLarge, ClientDisconnect."""
        slot = self.slot_of(request)
        body: Any = None if endpoint.body is None else codec.decode(await _body(request), endpoint.body)
        match endpoint.name:
            case "getHealth":
                return _answer(await self._node.health())
            case "listCards":
                return _answer(await self._node.cards())
            case "listSlots":
                return _answer(await self._node.slots())
            case "makeSlot":
                return _answer(await self._node.make(body), 201)
            case "explainPod":
                return _answer(await self._node.explain(_pod_of(request)))
            case "fitSlots":
                return _answer(await self._node.fit(body))
        assert slot is not None, endpoint
        match endpoint.name:
            case "getSlot" | "getNamedSlot":
                return _answer(await self._node.slot(slot))
            case "resizeSlot" | "resizeNamedSlot":
                if endpoint.where == "slot":
                    self._limit.take()
                generation = codec.parse_generation(request.headers.get("if-match"))
                return _answer(await self._node.resize(slot, body, generation))
            case "releaseSlot":
                return _answer(await self._node.release(slot))
            case "ownSlot":
                return _answer(await self._node.own(slot, body))
            case "watchSlot":
                first = await self._node.slot(slot)
                headers = {"Cache-Control": "no-store"}
                return StreamingResponse(
                    self._events(slot, first), headers=headers, media_type="text/event-stream"
                )
        raise AssertionError(endpoint)

    async def _events(self, slot: str, first: models.Slot) -> AsyncIterator[bytes]:
        current, sent = first, time.monotonic()
        yield _event(first)
        while True:
            await self._node.wait_for_change(slot, LOOK_EVERY)
            try:
                latest = await self._node.slot(slot)
            except Refusal as refusal:
                # only of a slot that is gone: a reader that was merely cut off comes back
                if refusal.code is Code.NO_SUCH_SLOT:
                    yield b"event: gone\ndata: {}\n\n"
                return
            # what is measured changes all the time: it may wait for the next look
            pure = _decided(latest) == _decided(current)
            if latest != current and not (pure and time.monotonic() - sent < LOOK_EVERY * 0.9):
                current, sent = latest, time.monotonic()
                yield _event(latest)
            elif time.monotonic() - sent >= COMMENT_EVERY:
                sent = time.monotonic()
                yield b": still here\n\n"

    async def refuse(self, request: Request, refusal: Refusal) -> Response:
        """Answer with the refusal; a stale one brings the slot as it stands."""
        current = None
        slot = self.slot_of(request)
        if refusal.code is Code.STALE and slot is not None:
            try:
                current = await self._node.slot(slot)
            except Refusal as gone:
                # it did not change, it ended
                refusal = gone if gone.code is Code.NO_SUCH_SLOT else refusal
        self._heard(refusal.code)
        return _refused(refusal, current)

    def paced(self, refusal: Refusal) -> Response:
        """Answer with the refusal of a request that came too soon; it is not looked at."""
        self._heard(refusal.code)
        return _refused(refusal)


def _refused(refusal: Refusal, current: models.Slot | None = None) -> Response:
    headers = {"Retry-After": "1"} if refusal.code is Code.TOO_MANY_REQUESTS else None
    return _problem_response(problems.problem(refusal, current=current), headers)


def _decided(slot: models.Slot) -> models.Slot:
    """Return the slot without what was measured."""
    cards = tuple(msgspec.structs.replace(card, used=0, free_on_card=card.requested) for card in slot.cards)
    return msgspec.structs.replace(
        slot, used=0, could_reach=slot.requested, cards=cards, processes=(), message="", time=None
    )


def _event(slot: models.Slot) -> bytes:
    return b"event: slot\nid: %d\ndata: %s\n\n" % (slot.generation, msgspec.json.encode(slot))


def _handler(operations: Operations, endpoint: Endpoint) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            return await operations.call(endpoint, request)
        except Refusal as refusal:
            return await operations.refuse(request, refusal)
        except TooLarge:
            large = Refusal(
                Code.BAD_REQUEST,
                f"The body is larger than {codec.LARGEST_BODY // 1024} KiB; no request of Gaia's is.",
            )
            return _problem_response(problems.problem(large, status=413), {"Connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            # a fault of ours must neither end the agent nor leave the caller without words
            log.exception("request failed", method=request.method, path=request.url.path)
            fault = Refusal(
                Code.UNAVAILABLE, "The agent failed at this request; nothing is known to have changed."
            )
            return _problem_response(problems.problem(fault, status=500))

    return handle


async def _no_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    said = "takes no such method" if status == 405 else "is not a path of this socket"
    refusal = Refusal(Code.BAD_REQUEST, f"{request.url.path[:100]} {said}.")
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return _problem_response(problems.problem(refusal, status=status), headers)


def make_app(node: Node, slot: str | None = None, *, refused: Heard = _unheard) -> Starlette:
    """Return the application for the socket of `slot`, or for the operator socket.

    `refused` is told the code of each refusal, before it is answered.
    """
    where: Where = "operator" if slot is None else "slot"
    operations = Operations(node, slot, refused)
    routes = [
        Route(endpoint.path, _handler(operations, endpoint), methods=[endpoint.method])
        for endpoint in ENDPOINTS
        if endpoint.where == where
    ]
    limits = [] if slot is None else [Middleware(pace.Paced, limit=pace.requests(), answer=operations.paced)]
    handlers = {404: _no_route, 405: _no_route, 400: _no_route}
    return Starlette(routes=routes, exception_handlers=handlers, middleware=limits)
