"""The HTTP side: paths, verbs and streams."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.kubeapi import custom
from tests.support.kubeapi.binding import bind
from tests.support.kubeapi.collection import Key, Object, Objects, Refused, expired
from tests.support.kubeapi.faults import Asked, Trouble


class Watcher:
    """One open watch: what a test puts into it apart from the events."""

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self.loop = asyncio.get_running_loop()
        self.awake = asyncio.Event()
        self.extra: list[bytes | BaseException | None] = []

    def wake(self) -> None:
        """Let it look again; from any thread."""
        self.loop.call_soon_threadsafe(self.awake.set)


@dataclass
class State:
    """What the server and a test share; everything under `lock`."""

    objects: Objects = field(default_factory=Objects)
    lock: threading.RLock = field(default_factory=threading.RLock)
    watchers: list[Watcher] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    installed: set[str] = field(default_factory=lambda: set(custom.CUSTOM))
    gone_in_stream: bool = True
    before_page: Callable[[Asked], None] | None = None

    def wake(self) -> None:
        """Let every watch look again."""
        for watcher in list(self.watchers):
            watcher.wake()


def make_app(state: State) -> Starlette:
    """Return the API server's paths over a state."""

    async def answer(request: Request) -> Response:
        raw = await request.body()
        asked = Asked(
            request.method,
            request.url.path,
            dict(request.query_params),
            json.loads(raw) if raw else None,
            dict(request.headers),
        )
        with state.lock:
            state.asked.append(asked)
            trouble = next((each for each in state.troubles if each.match(asked)), None)
            if trouble is not None:
                trouble.times -= 1
                if not trouble.times:
                    state.troubles.remove(trouble)

        def reply() -> Response:
            try:
                return _route(state, asked, request.path_params)
            except Refused as refusal:
                return JSONResponse(refusal.status, refusal.code)

        return reply() if trouble is None else await trouble.answer(asked, reply)

    verbs = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    core, grouped = "/api/{group:str}", "/apis/{api:str}/{group:str}"
    tails = (
        "/{plural}",
        "/{plural}/{name}",
        "/namespaces/{namespace}/{plural}",
        "/namespaces/{namespace}/{plural}/{name}",
    )
    # The longer first: /namespaces/x/pods must not be read as the collection "namespaces".
    paths = [head + tail for tail in reversed(tails) for head in (core, grouped)]
    paths.append(grouped + "/{plural}/{name}/{part:str}")
    paths.append(core + "/namespaces/{namespace}/{plural}/{name}/{binding:str}")
    return Starlette(routes=[Route(path, answer, methods=verbs) for path in paths])


def _route(state: State, asked: Asked, found: dict[str, str]) -> Response:
    collection = "/".join(filter(None, (found.get("api"), found["group"], found["plural"])))
    namespace, name = found.get("namespace"), found.get("name")
    key: Key = (collection, namespace or "", name or "")
    is_custom, of_status = collection in custom.CUSTOM, found.get("part") == "status"
    with state.lock:
        if (is_custom and collection not in state.installed) or ("part" in found and not of_status):
            return PlainTextResponse("404 page not found\n", 404)
        if "binding" in found:
            done = bind(state.objects, key, asked.body or {})
            state.wake()
            return JSONResponse(done, 201)
        match asked.method, name:
            case "GET", None if asked.query.get("watch") in ("1", "true"):
                return _watch(state, asked, collection, namespace)
            case "GET", None:
                if state.before_page:
                    state.before_page(asked)
                return JSONResponse(
                    state.objects.listed(
                        collection,
                        namespace,
                        asked.query.get("fieldSelector", ""),
                        int(asked.query.get("limit", 0)),
                        asked.query.get("continue"),
                    )
                )
            case "GET", _:
                return JSONResponse(state.objects.get(key))
            case "POST", None:
                return _create(state, collection, namespace, asked.body or {})
            case "PUT", _ if is_custom:
                done = custom.replace(state.objects, key, asked.body or {}, status=of_status)
            case "PATCH", _ if is_custom:
                done = custom.patch(state.objects, key, asked.body or {}, status=of_status)
            case "PATCH", _:
                done = state.objects.patch(key, asked.body or {})
            case "PUT", _:
                body = asked.body or {}
                state.objects.check(key, body["metadata"].get("uid"), body["metadata"].get("resourceVersion"))
                done = state.objects.put(collection, body)
            case "DELETE", _:
                done = _delete(state.objects, key, asked.body or {})
            case _:
                raise Refused(405, "MethodNotAllowed", "the server does not allow this method")
        state.wake()
        return JSONResponse(done)


def _create(state: State, collection: str, namespace: str | None, body: Object) -> Response:
    body["metadata"].setdefault("namespace", namespace or "")
    key = (collection, body["metadata"]["namespace"], body["metadata"]["name"])
    if key in state.objects.current:
        raise Refused(409, "AlreadyExists", f'"{key[2]}" already exists')
    if collection in custom.CUSTOM:
        made = custom.create(state.objects, key, body)
    else:
        made = state.objects.put(collection, body)
    state.wake()
    return JSONResponse(made, 201)


def _delete(objects: Objects, key: Key, options: Object) -> Object:
    objects.check(key, options.get("preconditions", {}).get("uid"), None)
    item = objects.get(key)
    bound = item.get("spec", {}).get("nodeName")
    if bound and options.get("gracePeriodSeconds") != 0:
        # The kubelet of its node ends the containers first; a test does that by `remove`.
        return objects.patch(key, {"metadata": {"deletionTimestamp": "2026-11-29T12:00:00Z"}})
    return objects.remove(key)


def _watch(state: State, asked: Asked, collection: str, namespace: str | None) -> Response:
    objects, selector = state.objects, asked.query.get("fieldSelector", "")
    since = int(asked.query.get("resourceVersion") or 0)
    if since < objects.oldest and not state.gone_in_stream:
        raise expired(since, objects.oldest)
    watcher = Watcher(collection)
    state.watchers.append(watcher)

    def news(seen: int) -> list[tuple[int, Object]]:
        if seen < objects.oldest:
            return [(objects.version, {"type": "ERROR", "object": expired(seen, objects.oldest).status})]
        return list(objects.events(collection, namespace, selector, seen))

    seconds = float(asked.query.get("timeoutSeconds", 300))
    return StreamingResponse(_lines(state, watcher, news, since, seconds), media_type="application/json")


async def _lines(
    state: State,
    watcher: Watcher,
    news: Callable[[int], list[tuple[int, Object]]],
    since: int,
    seconds: float,
) -> AsyncIterator[bytes]:
    deadline = watcher.loop.time() + seconds
    try:
        while True:
            watcher.awake.clear()
            with state.lock:
                extra, watcher.extra = watcher.extra, []
                events = news(since)
            for version, event in events:
                since = version
                yield json.dumps(event).encode() + b"\n"
                if event["type"] == "ERROR":
                    return
            for piece in extra:
                if piece is None:
                    return
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
            left = deadline - watcher.loop.time()
            if left <= 0:
                return
            try:
                await asyncio.wait_for(watcher.awake.wait(), left)
            except TimeoutError:
                continue
    finally:
        with state.lock:
            state.watchers.remove(watcher)
