"""The API from the outside: what hub, server extension, panel and command line call.

Synchronous and without dependencies beyond msgspec; safe to use from several threads, because every
call opens a connection of its own (a unix socket; some 100 microseconds).
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from gaia_plugin.api import models, sockets
from gaia_plugin.errors import Code, Refusal

TIMEOUT: Final = 20.0
"""Seconds for one answer. Making the first slot may wait for a card to be measured."""

EVENT_TIMEOUT: Final = 45.0
"""Seconds without a byte after which an event stream is dead: the agent writes every 15 s."""

LARGEST_ANSWER: Final = 16 << 20

_T = TypeVar("_T")


class ApiRefusal(Refusal):
    """A refusal that came as problem details; `problem` has all of them, `current` with 412."""

    def __init__(self, code: Code, problem: models.Problem) -> None:
        best = problem.best_offer
        super().__init__(
            code,
            problem.detail,
            best_memory=None if best is None else best.memory,
            best_cores=None if best is None else best.cores,
        )
        self.problem = problem


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("gaia", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = sockets.connect(self._path, self.timeout)


class _Client:
    def __init__(self, socket_path: str | Path, *, timeout: float = TIMEOUT) -> None:
        self.socket_path = Path(socket_path)
        self._timeout = timeout

    def _unavailable(self, why: object) -> Refusal:
        return Refusal(
            Code.UNAVAILABLE,
            f"Gaia's agent does not answer at {self.socket_path} ({why}). Either the slot has ended or "
            "the agent is not running; `gaia doctor` says which.",
        )

    def _open(
        self, method: str, path: str, body: object, headers: dict[str, str], timeout: float
    ) -> tuple[_UnixConnection, http.client.HTTPResponse]:
        payload = None
        if body is not None:
            try:
                payload = json.dumps(body).encode()
            except (TypeError, ValueError) as error:
                raise Refusal(
                    Code.BAD_REQUEST, f"This request cannot be written as JSON: {error}."
                ) from error
            headers = {**headers, "Content-Type": "application/json"}
        connection = _UnixConnection(self.socket_path, timeout)
        try:
            connection.request(method, path, payload, headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unavailable(error) from error

    def _call(
        self,
        method: str,
        path: str,
        answer: type[_T] | Any,
        body: object = None,
        generation: int | None = None,
    ) -> _T:
        headers = {"Connection": "close"}
        if generation is not None:
            headers["If-Match"] = f'"{generation}"'
        connection, response = self._open(method, path, body, headers, self._timeout)
        try:
            content = response.read(LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from error
        finally:
            response.close()
            connection.close()
        if response.status >= 400:
            raise self._refusal(response.status, content)
        try:
            decoded: _T = msgspec.json.decode(content, type=answer)
        except msgspec.MsgspecError as error:
            raise self._unavailable(f"its answer does not read as expected: {error}") from error
        return decoded

    def _refusal(self, status: int, content: bytes) -> Refusal:
        try:
            problem = msgspec.json.decode(content, type=models.Problem)
            return ApiRefusal(Code(problem.code), problem)
        except (msgspec.MsgspecError, ValueError):
            return self._unavailable(f"it answered with status {status}")


def _resize_body(memory: object, cores: object, cards: object) -> dict[str, object]:
    body = {"memory": memory, "cores": cores, "cards": cards}
    return {key: value for key, value in body.items() if value is not None}


class EventStream:
    """The changes of a slot as they happen; iterate over it, `close` it from any thread.

    Yields a `Slot` at every change, the first at once. Ends quietly when it is closed, when the
    slot is gone or when the agent ends.
    """

    def __init__(self, connection: _UnixConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self._socket = connection.sock

    def __iter__(self) -> Iterator[models.Slot]:
        try:
            name = ""
            for line in self._lines():
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:") and name == "slot":
                    yield msgspec.json.decode(line[5:], type=models.Slot)
                elif not line:
                    name = ""
        finally:
            self._response.close()
            self._connection.close()

    def _lines(self) -> Iterator[str]:
        while True:
            try:
                line = self._response.readline(1 << 20)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                return
            if not line:
                return
            yield line.decode("utf-8", "replace").rstrip("\r\n")

    def close(self) -> None:
        """End the stream; a thread that waits in it comes back at once."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._response.close()
        self._connection.close()


class SlotClient(_Client):
    """One slot, over its own socket. The socket is the identity: there is no token.

    Every method raises `Refusal`: what the agent answered, or ``unavailable`` when it does not.
    """

    def slot(self) -> models.Slot:
        """Return the slot as it stands."""
        return self._call("GET", "/v1/slot", models.Slot)

    def resize(
        self,
        memory: object = None,
        cores: object = None,
        generation: int | None = None,
        *,
        cards: dict[str, dict[str, object]] | None = None,
    ) -> models.Resized:
        """Set the totals: memory in bytes or as text with a unit, cores in percent of one card.

        With `generation` the resize is taken only if nobody else has changed the slot since.
        """
        body = _resize_body(memory, cores, cards)
        return self._call("PATCH", "/v1/slot", models.Resized, body, generation)

    def events(self) -> EventStream:
        """Return a stream of the slot's changes."""
        connection, response = self._open("GET", "/v1/slot/events", None, {}, EVENT_TIMEOUT)
        if response.status >= 400:
            content = response.read(LARGEST_ANSWER)
            connection.close()
            raise self._refusal(response.status, content)
        return EventStream(connection, response)


class NodeClient(_Client):
    """A whole node, over the operator socket. Raises like `SlotClient`."""

    def cards(self) -> tuple[models.CardView, ...]:
        """Return the cards with what is free on them."""
        return self._call("GET", "/v1/cards", tuple[models.CardView, ...])

    def slots(self) -> tuple[models.Slot, ...]:
        """Return all slots."""
        return self._call("GET", "/v1/slots", tuple[models.Slot, ...])

    def make(self, wish: models.NewSlot) -> models.MadeSlot:
        """Make a slot."""
        return self._call("POST", "/v1/slots", models.MadeSlot, _builtins(wish))

    def slot(self, slot: str) -> models.Slot:
        """Return one slot."""
        return self._call("GET", _path(slot), models.Slot)

    def resize(
        self,
        slot: str,
        memory: object = None,
        cores: object = None,
        generation: int | None = None,
        *,
        cards: dict[str, dict[str, object]] | None = None,
    ) -> models.Resized:
        """Set a slot's totals, see `SlotClient.resize`."""
        body = _resize_body(memory, cores, cards)
        return self._call("PATCH", _path(slot), models.Resized, body, generation)

    def release(self, slot: str) -> models.Slot:
        """Release a slot; it is gone when its memory is free. Return it as it stands."""
        return self._call("DELETE", _path(slot), models.Slot)

    def own(self, slot: str, process: int) -> models.Slot:
        """Make the slot belong to the process with this host pid; it is released when that ends."""
        return self._call("PUT", f"{_path(slot)}/process", models.Slot, {"process": process})

    def fit(self, wishes: Sequence[models.NewSlot]) -> tuple[models.Fit, ...]:
        """Tell for each wish whether it could start now. Books nothing."""
        body = [_builtins(wish) for wish in wishes]
        return self._call("POST", "/v1/fit", tuple[models.Fit, ...], body)

    def explain(self, pod: str) -> models.Explained:
        """Tell of a pod (namespace/name) what it asks for, what it has, and why it has no more."""
        return self._call("GET", f"/v1/explain?pod={quote(pod, safe='/')}", models.Explained)

    def health(self) -> models.Health:
        """Return who answers: the agent's pid, driver and number of slots."""
        return self._call("GET", "/v1/healthz", models.Health)


def _builtins(wish: models.NewSlot) -> dict[str, object]:
    """Return the wish as it will be written, untouched where its types are wrong.

    The agent is the judge of amounts, so a float or a list must reach it as it is.
    """
    given = {name: getattr(wish, name) for name in wish.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None}


def _path(slot: str) -> str:
    return f"/v1/slots/{quote(slot, safe='')}"
