"""Routes under <base>/gaia/api/: the slot, its resize, its changes.

Each is authenticated, authorised and XSRF-checked by Jupyter Server, so whoever may only look at a
server (a read-only share) may look at its slice and gets 403 for a resize. Answers and refusals of the
agent pass through with their status.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from gaia_hub.server.place import NO_SLICE, slot_socket
from gaia_hub.server.problems import problem
from gaia_hub.server.watch import SlotWatch, Subscription
from gaia_plugin.api.client import SlotClient
from gaia_plugin.api.models import Problem, Resize
from gaia_plugin.errors import Code, Refusal

RESOURCE: Final = "gaia"
"""What an authorizer is asked about, with the action ``read`` or ``write``."""

LARGEST_BODY: Final = 64 << 10
ANSWER_WITHIN: Final = 10.0
COMMENT_EVERY: Final = 15.0
STREAM_LASTS: Final = 600.0
"""Seconds after which a stream ends and the browser comes back, so that access is checked anew."""

_T = TypeVar("_T")


def _client() -> SlotClient:
    socket = slot_socket()
    if socket is None:
        raise Refusal(Code.NO_SUCH_SLOT, NO_SLICE)
    return SlotClient(socket, timeout=ANSWER_WITHIN)


class _Slice:
    """What the handlers share. Costs nothing until the first request."""

    def __init__(self) -> None:
        # the agent takes 8 connections per slot: 4 for calls, 1 for the stream, the rest for others
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="gaia-slot")
        self.watch = SlotWatch(_client)

    async def call(self, ask: Callable[[SlotClient], _T]) -> _T:
        client = _client()
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask, client)


class _Handler(APIHandler):
    auth_resource = RESOURCE
    # a panel that looks must not keep an idle server from being culled; a resize is activity
    _track_activity = False

    def initialize(self, slice_: _Slice) -> None:
        self._slice = slice_

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")

    # The ETag is the slot's generation, for If-Match. It does not change with what is used, so it
    # must never turn an answer into "304, as before".
    def compute_etag(self) -> None:
        return None

    def check_etag_header(self) -> bool:
        return False

    def answer(self, content: msgspec.Struct, generation: int) -> None:
        self.set_header("ETag", f'"{generation}"')
        self.finish(msgspec.json.encode(content))

    def refuse(self, what: Refusal | Problem) -> None:
        said = problem(what) if isinstance(what, Refusal) else what
        self.set_status(said.status)
        if said.current is not None:
            self.set_header("ETag", f'"{said.current.generation}"')
        self.finish(msgspec.json.encode(said), set_content_type="application/problem+json")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write Jupyter Server's own refusals (403 above all) as problem details too."""
        error = kwargs.get("exc_info", (None, None))[1]
        said = getattr(error, "log_message", None) or "The Jupyter server could not answer."
        code = "forbidden" if status_code == 403 else "server_error"
        title = self._reason if status_code == self.get_status() else ""
        self.refuse(Problem(type="about:blank", title=title, status=status_code, detail=said, code=code))


class SlotHandler(_Handler):
    """The slot as it stands, and its resize."""

    @web.authenticated
    @authorized("read", resource=RESOURCE)  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Answer with the slot; ``Allow`` says whether this user may resize it."""
        try:
            slot = await self._slice.call(SlotClient.slot)
        except Refusal as refusal:
            self.refuse(refusal)
            return
        may_write = await ensure_async(
            self.authorizer.is_authorized(self, self.current_user, "write", RESOURCE)
        )
        self.set_header("Allow", "GET, PATCH" if may_write else "GET")
        self.answer(slot, slot.generation)

    @web.authenticated
    @authorized("write", resource=RESOURCE)  # type: ignore[untyped-decorator]
    async def patch(self) -> None:
        """Resize. The agent judges the amounts; only the form of the request is judged here."""
        self._track_activity = True
        if len(self.request.body) > LARGEST_BODY:
            self.refuse(
                Problem(
                    type="about:blank",
                    title="Content Too Large",
                    status=413,
                    detail="A resize has at most 64 KiB.",
                    code=str(Code.BAD_REQUEST),
                )
            )
            return
        try:
            wish = _wish(self.request.body)
            generation = _generation(self.request.headers.get("If-Match"))
            resize = partial(
                SlotClient.resize,
                memory=wish.memory,
                cores=wish.cores,
                generation=generation,
                cards=wish.cards,
            )
            resized = await self._slice.call(resize)
        except Refusal as refusal:
            self.refuse(refusal)
            return
        self.answer(resized, resized.slot.generation)


class EventsHandler(_Handler):
    """The slot's changes as server-sent events: ``slot``, or ``problem`` while the agent is away."""

    _subscription: Subscription | None = None

    def _leave(self) -> None:
        if self._subscription is not None:
            self._slice.watch.unsubscribe(self._subscription)

    @web.authenticated
    @authorized("read", resource=RESOURCE)  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Stream until the browser leaves or the stream has lasted long enough."""
        if slot_socket() is None:
            self.refuse(Refusal(Code.NO_SUCH_SLOT, NO_SLICE))
            return
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("X-Accel-Buffering", "no")
        ends = time.monotonic() + STREAM_LASTS
        self._subscription = subscription = self._slice.watch.subscribe()
        message: bytes | None = None
        try:
            # the first comment goes out at once: it shows the browser that no proxy holds events back
            while (left := ends - time.monotonic()) > 0:
                self.write(message or b": still here\n\n")
                await self.flush()
                message = await subscription.next(min(COMMENT_EVERY, left))
        except StreamClosedError:
            pass
        finally:
            self._leave()

    def on_connection_close(self) -> None:
        """Leave at once, not at the next comment."""
        super().on_connection_close()
        self._leave()


def _wish(body: bytes) -> Resize:
    try:
        return msgspec.json.decode(body, type=Resize)
    except msgspec.MsgspecError as error:
        raise Refusal(
            Code.BAD_REQUEST,
            f'A resize is a JSON object such as {{"memory": "8GiB", "cores": 50}}; this is not one: {error}.',
        ) from error


def _generation(if_match: str | None) -> int | None:
    """Return the generation in an ``If-Match`` header; a proxy may have marked it as weak."""
    if if_match is None or if_match == "*":
        return None
    found = re.fullmatch(r'(?:W/)?"([0-9]{1,18})"', if_match)
    if found is None:
        raise Refusal(Code.BAD_REQUEST, 'If-Match must be the slot\'s generation in quotes, such as "7".')
    return int(found[1])


def routes(base_url: str) -> list[tuple[str, type[APIHandler], dict[str, object]]]:
    """Return the extension's routes below `base_url`."""
    shared: dict[str, object] = {"slice_": _Slice()}
    return [
        (url_path_join(base_url, "gaia", "api", "slot"), SlotHandler, shared),
        (url_path_join(base_url, "gaia", "api", "slot", "events"), EventsHandler, shared),
    ]
