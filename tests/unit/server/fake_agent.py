"""An agent at the level of its protocol: HTTP/JSON on a unix socket, with the answers a test sets.

It runs in threads of the test's own process; `stop` and `start` make the agent go away and come back.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

GIB = 1 << 30
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def slot(
    *,
    memory: float = 4,
    cores: int = 25,
    used: float = 1.5,
    generation: int = 1,
    state: str = "applied",
    held: float | None = None,
    maximum: float = 16,
    reach: float = 11.5,
    message: str = "",
    compute: str = "hard",
    busy: float = 0,
    limit: float | None = None,
    note: str = "",
) -> dict[str, Any]:
    """Return a slot as JSON; memory in GiB, `busy` and `limit` in percent of the card's time."""

    def amounts(gib: float, percent: int) -> dict[str, int]:
        return {"memory": int(gib * GIB), "cores": percent}

    allowed = int(10 * (cores if limit is None else limit))
    time = {
        "guaranteed": 10 * cores, "limit": allowed, "ceiling": 1000 if compute == "elastic" else 10 * cores,
        "used": int(10 * busy), "throttled": 0,
    }  # fmt: skip
    held_now = amounts(memory if held is None else held, cores)
    return {
        "slot": "alice", "owner": "alice", "name": "", "generation": generation, "state": state,
        "compute": compute, "requested": amounts(4, 25), "granted": amounts(memory, cores), "held": held_now,
        "used": int(used * GIB), "maximum": amounts(maximum, 100), "could_reach": amounts(reach, 75),
        "cards": [{
            "uuid": UUID, "index": 0, "name": "Gaia Simulated GPU",
            "requested": amounts(4, 25), "granted": amounts(memory, cores), "held": held_now,
            "used": int(used * GIB), "free_on_card": amounts(reach - memory, 50),
        }],
        "processes": [{"pid": 4711, "name": "python3", "memory": int(used * GIB)}] if used else [],
        "message": message, "label": "", "note": "",
        "time": {**time, "cards": [{"uuid": UUID, "rate": allowed, **time}], "note": note},
    }  # fmt: skip


def problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """Return problem details as JSON."""
    return {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code, **more}


class FakeAgent:
    """The agent at `path`. Grants what is asked up to 11.5 GiB, drains below what is used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.slot = slot()
        self.answer: tuple[int, dict[str, Any]] | None = None
        """What PATCH answers instead of deciding."""
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.streams = 0
        self._changed = threading.Condition()
        self._server: _Server | None = None

    def start(self) -> None:
        """Listen."""
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go away: no socket, every connection ended."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            for connection in list(server.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self.path.unlink(missing_ok=True)
            with self._changed:
                self._changed.notify_all()

    def set(self, **changes: Any) -> None:
        """Set the slot anew (see `slot`), one generation on, and tell the streams."""
        self.put(slot(**{"generation": self.slot["generation"] + 1, **changes}))

    def put(self, value: dict[str, Any]) -> None:
        """Make `value` the slot and tell the streams."""
        with self._changed:
            self.slot = value
            self._changed.notify_all()

    def after(self, told: object, server: _Server) -> dict[str, Any]:
        """Wait until the slot is another one than `told`, the agent goes, or a moment has passed."""
        with self._changed:
            self._changed.wait_for(lambda: self.slot is not told or self._server is not server, 0.2)
            return self.slot

    def resize(self, wish: dict[str, Any], if_match: str | None) -> tuple[int, dict[str, Any]]:
        """Decide as the agent would."""
        if self.answer is not None:
            return self.answer
        now = self.slot
        if if_match is not None and if_match != f'"{now["generation"]}"':
            return 412, problem(
                412, "stale", "The slice has changed meanwhile; these are its values now.", current=now
            )
        memory = wish.get("memory", now["granted"]["memory"]) / GIB
        cores = wish.get("cores", now["granted"]["cores"])
        used = now["used"] / GIB
        if memory > 11.5:
            sentence = "Only 7.5 GiB are free on this card; you can have up to 11.5 GiB in total."
            best = {"memory": int(11.5 * GIB), "cores": cores}
            return 409, problem(409, "card_full", sentence, best_offer=best)
        draining = used > memory
        sentence = (
            f"The slice is now {memory:g} GiB, but {used:g} GiB are in use: free {used - memory:g} GiB."
            if draining
            else f"The slice is now {memory:g} GiB."
        )
        self.set(
            memory=memory, cores=cores, used=used, held=max(memory, used),
            state="draining" if draining else "applied", message=sentence if draining else "",
        )  # fmt: skip
        return 200, {"state": self.slot["state"], "message": sentence, "slot": self.slot}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, agent: FakeAgent) -> None:
        self.agent = agent
        self.connections: set[Any] = set()
        super().__init__(str(agent.path), _Handler)

    def process_request(self, request: Any, address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, address: Any) -> None:
        """Say nothing of clients that left."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        agent = self.server.agent
        agent.requests.append(("GET", self.path, dict(self.headers), None))
        if self.path == "/v1/slot/events":
            return self._events(agent)
        return self._write(200, agent.slot)

    def do_PATCH(self) -> None:
        agent = self.server.agent
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        agent.requests.append(("PATCH", self.path, dict(self.headers), body))
        return self._write(*agent.resize(body, self.headers["If-Match"]))

    def _write(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _events(self, agent: FakeAgent) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        agent.streams += 1
        told: object = None
        try:
            while agent._server is self.server:
                now = agent.after(told, self.server)
                line = b"event: slot\ndata: %s\n\n" % json.dumps(now).encode()
                if now is told:
                    line = b": still here\n\n"
                told = now
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        finally:
            agent.streams -= 1
