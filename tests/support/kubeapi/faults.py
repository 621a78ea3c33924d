"""What can happen to a request instead of its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.support.kubeapi.collection import Object, Refused


class Abort(Exception):
    """Breaks a connection off in the middle of an answer."""


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    body: Object | None
    headers: dict[str, str]


Match = Callable[[Asked], bool]
Reply = Callable[[], Response]
"""Carries the request out; its refusal is an answer too."""


@dataclass
class Trouble:
    """What happens to the next `times` requests that match."""

    times: int
    match: Match

    async def answer(self, asked: Asked, reply: Reply) -> Response:
        """Return what the client gets."""
        raise NotImplementedError


@dataclass
class Said(Trouble):
    """This answer, instead of the true one; nothing is carried out."""

    code: int
    reason: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None

    async def answer(self, asked: Asked, reply: Reply) -> Response:
        if self.body is not None:
            return Response(self.body, self.code, self.headers, "application/json")
        return JSONResponse(
            Refused(self.code, self.reason, self.message).status, self.code, headers=self.headers
        )


class Lost(Trouble):
    """Carried out, and the connection breaks before the answer."""

    async def answer(self, asked: Asked, reply: Reply) -> Response:
        reply()
        return broken()


@dataclass
class Slow(Trouble):
    """Carried out at once, answered after so many seconds."""

    seconds: float

    async def answer(self, asked: Asked, reply: Reply) -> Response:
        done = reply()
        await asyncio.sleep(self.seconds)
        return done


@dataclass
class Held(Trouble):
    """Requests that are under way until `deliver`; their senders got a broken connection, or wait."""

    patient: bool
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: list[tuple[Asked, Callable[[bool], Response | None]]] = field(default_factory=list)

    @property
    def waiting(self) -> list[Asked]:
        """Return the requests that are under way."""
        with self._lock:
            return [asked for asked, _ in self._waiting]

    def deliver(self) -> list[int]:
        """Carry all of them out, oldest first; return the status of each."""
        return [answer.status_code for answer in self._end(carry_out=True) if answer is not None]

    def lose(self) -> None:
        """Let none of them ever arrive."""
        self._end(carry_out=False)

    def _end(self, *, carry_out: bool) -> list[Response | None]:
        with self._lock:
            ending, self._waiting = self._waiting, []
        return [end(carry_out) for _, end in ending]

    async def answer(self, asked: Asked, reply: Reply) -> Response:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Response] = loop.create_future()

        def end(carry_out: bool) -> Response | None:
            answer = reply() if carry_out else None
            loop.call_soon_threadsafe(_set, ended, answer or broken())
            return answer

        with self._lock:
            self._waiting.append((asked, end if self.patient else lambda now: reply() if now else None))
        return await ended if self.patient else broken()


def _set(ended: asyncio.Future[Response], answer: Response) -> None:
    if not ended.done():
        ended.set_result(answer)


def broken() -> Response:
    """Return an answer that breaks off before its first byte of content."""

    async def nothing() -> AsyncIterator[bytes]:
        raise Abort
        yield b""

    return StreamingResponse(nothing(), media_type="application/json")
