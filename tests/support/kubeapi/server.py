"""The server in a thread, and what a test can do to it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import uvicorn

from tests.support.kubeapi.app import State, make_app
from tests.support.kubeapi.collection import Key, Object, merge
from tests.support.kubeapi.custom import GPUNODES
from tests.support.kubeapi.faults import Abort, Asked, Held, Lost, Match, Said, Slow, Trouble

Backup = tuple[int, dict[Key, Object]]

PODS = "v1/pods"
EVENTS = "events.k8s.io/v1/events"
NODES = "v1/nodes"


def any_request(asked: Asked) -> bool:
    """Match every request."""
    return True


class FakeKubeApi:
    """A Kubernetes API server on a port of this machine. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._state = State()
        # Keeps the port ours while the server is away; nothing listens on it then.
        self._reserved = self._bound(0)
        self.port: int = self._reserved.getsockname()[1]
        self._held: list[Held] = []
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> FakeKubeApi:
        self.back()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.away()
        self._reserved.close()

    @property
    def url(self) -> str:
        """Return where it is."""
        return f"http://127.0.0.1:{self.port}"

    def kubeconfig(self, path: Path, token: str = "secret") -> Path:
        """Write a kubeconfig (JSON is YAML) that leads here."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
                    "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
                    "users": [{"name": "me", "user": {"token": token}}],
                }
            )
        )
        return path

    # What happens to objects

    def put(self, item: Object, collection: str = PODS) -> Object:
        """Create or replace an object as it stands; return it with its version."""
        with self._state.lock:
            made = self._state.objects.put(collection, item)
            self._state.wake()
        return made

    def change(self, name: str, change: Object, namespace: str = "default") -> Object:
        """Apply a merge patch to a pod, as its kubelet would by a report."""
        with self._state.lock:
            made = self._state.objects.put(PODS, merge(self.pod(name, namespace), change))
            self._state.wake()
        return made

    def remove(self, name: str, namespace: str = "default", collection: str = PODS) -> Object:
        """Delete an object for good."""
        with self._state.lock:
            gone = self._state.objects.remove((collection, namespace, name))
            self._state.wake()
        return gone

    def pod(self, name: str, namespace: str = "default") -> Object:
        """Return a pod as it stands; raises if there is none."""
        with self._state.lock:
            return self._state.objects.get((PODS, namespace, name))

    def all(self, collection: str = PODS) -> list[Object]:
        """Return all objects of a collection."""
        with self._state.lock:
            return [item for key, item in self._state.objects.current.items() if key[0] == collection]

    @property
    def events(self) -> list[Object]:
        """Return the events that were written, oldest first."""
        return self.all(EVENTS)

    # GPUNodes

    def node(self, name: str = "node1", uid: str = "node-uid-1") -> Object:
        """Make a Node, which a GPUNode belongs to; return it."""
        return self.put({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "uid": uid}}, NODES)

    def gpunode(self, name: str = "node1") -> Object | None:
        """Return a GPUNode as it stands; None: there is none."""
        with self._state.lock:
            return self._state.objects.current.get((GPUNODES, "", name))

    def reserve(self, *reservations: Object, name: str = "node1") -> Object:
        """Write `spec.reservations` over whatever version there is, as an extender that came first."""
        with self._state.lock:
            before = self._state.objects.get((GPUNODES, "", name))
            made = self._state.objects.put(GPUNODES, {**before, "spec": {"reservations": list(reservations)}})
            self._state.wake()
        return made

    def install_crds(self) -> None:
        """Know the kind GPUNode, as at the start."""
        with self._state.lock:
            self._state.installed.add(GPUNODES)

    def uninstall_crds(self) -> None:
        """Forget the kind GPUNode, with all its objects, as a deletion of its definition does."""
        with self._state.lock:
            for key in [key for key in self._state.objects.current if key[0] == GPUNODES]:
                self._state.objects.remove(key)
            self._state.installed.discard(GPUNODES)
            for watcher in self._state.watchers:
                if watcher.collection == GPUNODES:
                    watcher.extra.append(None)
            self._state.wake()

    # Bad days

    def compact(self, *, in_stream: bool = True) -> None:
        """Forget the history: an older version is answered 410, in the stream or as the status."""
        with self._state.lock:
            self._state.objects.oldest = self._state.objects.version
            self._state.objects.history.clear()
            self._state.gone_in_stream = in_stream

    def save(self) -> Backup:
        """Return a backup of all objects."""
        with self._state.lock:
            return self._state.objects.version, dict(self._state.objects.current)

    def restore(self, backup: Backup) -> None:
        """Be a server restored from a backup: versions go back too. Only while it is away."""
        with self._state.lock:
            objects = self._state.objects
            objects.version, objects.current = backup[0], dict(backup[1])
            objects.oldest = 0
            objects.history.clear()

    def inject(self, *pieces: bytes | BaseException | None) -> None:
        """Put bytes into every open watch; None ends it, an exception breaks it off."""
        with self._state.lock:
            for watcher in self._state.watchers:
                watcher.extra.extend(pieces)
            self._state.wake()

    def bookmark(self) -> None:
        """Send every open watch a bookmark."""
        version = str(self._state.objects.version)
        event = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}
        self.inject(json.dumps(event).encode() + b"\n")

    def drop(self, *, mid_line: bool = False, politely: bool = False) -> None:
        """End every open watch, after half an event if so; politely: as if the answer were complete."""
        half = (b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"na',) if mid_line else ()
        self.inject(*half, None if politely else Abort())

    def refuse(
        self,
        code: int,
        reason: str = "Refused",
        message: str = "not today",
        *,
        times: int = 1,
        match: Match = any_request,
        **headers: str,
    ) -> None:
        """Answer the next requests that match with a refusal."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        self._trouble(Said(times, match, code, reason, message, named))

    def answer(self, body: str, *, times: int = 1, match: Match = any_request) -> None:
        """Answer the next requests that match with this body, as if all were well."""
        self._trouble(Said(times, match, 200, body=body))

    def lose_answers(self, *, times: int = 1, match: Match = any_request) -> None:
        """Carry the next requests that match out, and break their connections before the answer."""
        self._trouble(Lost(times, match))

    def slow_down(self, seconds: float, *, times: int = 1, match: Match = any_request) -> None:
        """Carry the next requests that match out, and answer after so many seconds."""
        self._trouble(Slow(times, match, seconds))

    def hold_back(self, *, times: int = 1, match: Match = any_request, patient: bool = False) -> Held:
        """Keep the next requests that match under way until the test delivers or loses them.

        Their senders see the connection break at once; `patient`: they wait for the answer.
        """
        held = Held(times, match, patient)
        self._held.append(held)
        self._trouble(held)
        return held

    def heal(self) -> None:
        """End all troubles that are not over; what is held back stays so."""
        with self._state.lock:
            self._state.troubles.clear()

    def _trouble(self, trouble: Trouble) -> None:
        with self._state.lock:
            self._state.troubles.append(trouble)

    def before_page(self, act: Callable[[Asked], None] | None) -> None:
        """Call `act` before each page of a list is made; in the server's thread."""
        self._state.before_page = act

    @property
    def asked(self) -> list[Asked]:
        """Return all requests until now."""
        with self._state.lock:
            return list(self._state.asked)

    def watches(self) -> int:
        """Return how many watches are open."""
        with self._state.lock:
            return len(self._state.watchers)

    def away(self) -> None:
        """Be gone: every connection breaks, new ones are refused."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        with self._state.lock:
            held = [each for each in self._held if each.patient]
        for each in held:
            each.lose()
        while self._thread.is_alive():
            self.inject(Abort())
            self._thread.join(0.05)
        self._server = self._thread = None

    def back(self) -> None:
        """Be there again, with all objects, on the same port."""
        if self._server is not None:
            return
        listening = self._bound(self.port)
        config = uvicorn.Config(
            make_app(self._state), log_config=None, log_level="critical", access_log=False, lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="kubeapi", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + 120
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError("the API server did not start")
            self._thread.join(0.005)

    @staticmethod
    def _bound(port: int) -> socket.socket:
        # asyncio switches Nagle's delay (44 ms an answer) off only where the protocol is named
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(("127.0.0.1", port))
        return made
