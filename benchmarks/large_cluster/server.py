"""As much of an API server as the extender needs, from memory, in a process of its own.

Lists in pages, watches, GET, merge patches with a resourceVersion, Bindings, and a heartbeat of each node
every half minute. No authentication, no validation and no history: nobody falls behind here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from benchmarks.large_cluster.synthetic import Object, now

HEARTBEAT_SECONDS = 30.0
PODS = "/api/v1/pods"
GPUNODES = "/apis/gaia.io/v1alpha1/gpunodes"


class Store:
    """Objects by collection and name, as bytes for the wire."""

    def __init__(self, items: Iterable[tuple[str, Object]]) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Object]] = {}
        self.wire: dict[str, dict[str, bytes]] = {}
        self.watchers: dict[str, set[asyncio.Queue[bytes]]] = {}
        for collection, item in items:
            self.put(collection, item)

    def put(self, collection: str, item: Object) -> bytes:
        """Write an object; return it as it is on the wire."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        name = _key(item)
        raw = json.dumps(item).encode()
        self.objects.setdefault(collection, {})[name] = item
        self.wire.setdefault(collection, {})[name] = raw
        for queue in self.watchers.get(collection, ()):
            queue.put_nowait(b'{"type":"MODIFIED","object":' + raw + b"}\n")
        return raw


STORE = web.AppKey("store", Store)


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _refused(code: int, reason: str) -> web.Response:
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return web.json_response(told, status=code)


async def _collection(request: web.Request) -> web.StreamResponse:
    store, path = request.app[STORE], request.path
    if request.query.get("watch"):
        return await _watch(request, store, path)
    wire = list(store.wire.get(path, {}).values())
    begin, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or len(wire))
    end = begin + limit
    more = f'"continue":"{end}",' if end < len(wire) else ""
    head = f'{{"kind":"List","metadata":{{{more}"resourceVersion":"{store.version}"}},"items":['
    return _json(head.encode() + b",".join(wire[begin:end]) + b"]}")


async def _watch(request: web.Request, store: Store, path: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    store.watchers.setdefault(path, set()).add(queue)
    try:
        await response.prepare(request)
        while True:
            await response.write(await queue.get())
    except (ConnectionResetError, asyncio.CancelledError):
        return response
    finally:
        store.watchers[path].discard(queue)


def _found(request: web.Request) -> tuple[Store, str, str]:
    namespace, name = request.match_info.get("namespace", ""), request.match_info["name"]
    collection = PODS if namespace else request.path.rsplit("/", 1)[0]
    return request.app[STORE], collection, f"{namespace}/{name}"


async def _get(request: web.Request) -> web.Response:
    store, collection, key = _found(request)
    raw = store.wire.get(collection, {}).get(key)
    return _json(raw) if raw else _refused(404, "NotFound")


async def _patch(request: web.Request) -> web.Response:
    store, collection, key = _found(request)
    item, change = store.objects.get(collection, {}).get(key), await request.json()
    if item is None:
        return _refused(404, "NotFound")
    version = change.get("metadata", {}).pop("resourceVersion", None)
    if version not in (None, item["metadata"]["resourceVersion"]):
        return _refused(409, "Conflict")
    return _json(store.put(collection, _merged(item, change)))


async def _bind(request: web.Request) -> web.Response:
    store, _, key = _found(request)
    item, asked = store.objects[PODS].get(key), await request.json()
    if item is None:
        return _refused(404, "NotFound")
    version = item["metadata"]["resourceVersion"]
    if item["spec"].get("nodeName") or asked["metadata"]["resourceVersion"] != version:
        return _refused(409, "Conflict")
    item["spec"]["nodeName"] = asked["target"]["name"]
    item["metadata"]["annotations"] |= asked["metadata"].get("annotations", {})
    store.put(PODS, item)
    return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"}, status=201)


def _merged(target: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(target, dict):
        return change
    found = dict(target)
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


async def _beat(app: web.Application) -> None:
    store = app[STORE]
    while True:
        names = list(store.objects.get(GPUNODES, {}))
        for name in names:
            await asyncio.sleep(HEARTBEAT_SECONDS / len(names))
            store.objects[GPUNODES][name]["status"]["heartbeat"] = now()
            store.put(GPUNODES, store.objects[GPUNODES][name])


async def _beating(app: web.Application) -> Any:
    task = asyncio.create_task(_beat(app))
    yield
    task.cancel()


def serve(items: Iterable[tuple[str, Object]], port: int) -> None:
    """Serve these objects until a signal ends it."""
    app = web.Application(client_max_size=2**26)
    app[STORE] = Store(items)
    pods, nodes = "/api/v1/namespaces/{namespace}/pods/{name}", GPUNODES + "/{name}"
    for path in (PODS, "/api/v1/nodes", GPUNODES):
        app.router.add_get(path, _collection)
    for path in (pods, nodes):
        app.router.add_get(path, _get)
        app.router.add_patch(path, _patch)
    app.router.add_post(pods + "/binding", _bind)
    app.cleanup_ctx.append(_beating)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)
