"""Requests to the API server: bytes out, bytes in, and one exception.

Made on the Kubernetes client's configuration (kubeconfig, service account, TLS, tokens that are
renewed) and its HTTP layer. Nothing is repeated here: who asks knows whether asking twice is right.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import structlog
from aiohttp import ClientError, ClientResponse, ClientTimeout
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException

from gaia_plugin.errors import Unusable
from gaia_plugin.kube.connection import find_server
from gaia_plugin.kube.errors import NO_ANSWER, ApiError, from_body

log = structlog.get_logger(__name__)

MERGE_PATCH: Final = "application/merge-patch+json"
_JSON: Final = "application/json"

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0
LIST_SECONDS: Final = 60.0
SILENCE_SECONDS: Final = 90.0
"""A watch that brings nothing for so long is taken up anew. The server sends a bookmark about once
a minute; a peer that vanished without a word is noticed by nothing else."""

_LONGEST_LINE: Final = 32 << 20
"""Bytes; the largest object etcd keeps is a few MiB."""

_BROKEN: Final = (ClientError, asyncio.TimeoutError, OSError, ssl.SSLError)

Parameters = Mapping[str, str | int]
Body = Mapping[str, Any]


class _PageMetadata(msgspec.Struct):
    next: str | None = msgspec.field(default=None, name="continue")


class _PageHead(msgspec.Struct):
    metadata: _PageMetadata = msgspec.field(default_factory=_PageMetadata)


_PAGE_HEAD: Final = msgspec.json.Decoder(_PageHead)


class Api:
    """The API server. Paths begin with ``/api`` or ``/apis``; make it inside a running event loop."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._base = configuration.host.rstrip("/")
        self._find_again: Callable[[], Awaitable[Configuration]] | None = None
        try:
            self._rest = RESTClientObject(configuration)
        except (OSError, ssl.SSLError) as error:
            raise Unusable(
                f"The certificates for the Kubernetes API server {self._base} cannot be used: {error}"
            ) from error

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> Api:
        """Find out where the API server is; nothing is sent yet.

        Raises:
            Unusable: neither a kubeconfig nor a service account is there, or it cannot be used.
        """
        made = cls(await find_server(kubeconfig, context))
        made._find_again = lambda: find_server(kubeconfig, context)
        return made

    async def close(self) -> None:
        """End all connections."""
        await self._rest.close()

    async def get(
        self, path: str, parameters: Parameters | None = None, *, timeout: float = ANSWER_SECONDS
    ) -> bytes:
        """Return the body of what is at `path`; `timeout` in seconds.

        Raises:
            ApiError: refused, or no answer in time.
        """
        return await self._ask("GET", path, parameters, timeout=timeout)

    async def list_pages(
        self, path: str, parameters: Parameters | None = None, *, limit: int = 500
    ) -> AsyncIterator[bytes]:
        """Yield the pages of a list, each a whole body of at most `limit` objects.

        All pages show the same moment. A list that takes so long that this moment is forgotten ends in
        an error that is `expired`: begin again.

        Raises:
            ApiError: refused, or no answer in time.
        """
        asked: dict[str, str | int] = {**(parameters or {}), "limit": limit}
        while True:
            page = await self._ask("GET", path, asked, timeout=LIST_SECONDS)
            yield page
            try:
                following = _PAGE_HEAD.decode(page).metadata.next
            except msgspec.DecodeError as error:
                raise ApiError(
                    NO_ANSWER, "", f"a page that is no JSON: {error}", request=f"GET {path}"
                ) from error
            if not following:
                return
            asked["continue"] = following

    async def watch(
        self,
        path: str,
        parameters: Parameters | None = None,
        *,
        seconds: int = 300,
        silence: float = SILENCE_SECONDS,
    ) -> AsyncIterator[bytes]:
        """Yield the events of a watch, each one line of JSON, until the server ends it.

        The first line is empty: it says that the server has accepted the watch. `seconds` is how long
        the server shall let it go on; a line that was broken off is dropped.

        Raises:
            ApiError: refused, broken off, or silent for longer than `silence` seconds.
        """
        asked = {**(parameters or {}), "watch": 1, "timeoutSeconds": seconds}
        patience = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
        request = f"watch {path}"
        async with self._answer("GET", path, asked, patience) as answer:
            yield b""
            rest = b""
            try:
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        if line:
                            yield line
                    if len(rest) > _LONGEST_LINE:
                        raise ApiError(NO_ANSWER, "", "an event that never ends.", request=request)
            except _BROKEN as error:
                raise _unanswered(request, error) from error

    async def create(self, path: str, body: Body, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """POST an object to its collection; return it as the server made it.

        Raises:
            ApiError: refused, or no answer: then it may exist all the same.
        """
        return await self._ask("POST", path, body=body, timeout=timeout)

    async def replace(self, path: str, body: Body, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """PUT an object, with the resourceVersion it was decided upon in its metadata; return it.

        Raises:
            ApiError: refused (`conflict`: changed meanwhile), or no answer: it may be written.
        """
        return await self._ask("PUT", path, body=body, timeout=timeout)

    async def patch(self, path: str, body: Body, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """Send a JSON merge patch; return the object as it stands then.

        Raises:
            ApiError: refused, or no answer: it may be written.
        """
        return await self._ask("PATCH", path, body=body, content=MERGE_PATCH, timeout=timeout)

    async def delete(self, path: str, body: Body | None = None, *, timeout: float = ANSWER_SECONDS) -> bytes:
        """Delete an object; `body` are DeleteOptions.

        Raises:
            ApiError: refused, or no answer: it may be gone.
        """
        return await self._ask("DELETE", path, body=body, timeout=timeout)

    async def _ask(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        *,
        body: Body | None = None,
        content: str = _JSON,
        timeout: float,
    ) -> bytes:
        patience = ClientTimeout(total=timeout, sock_connect=min(CONNECT_SECONDS, timeout))
        async with self._answer(method, path, parameters, patience, body, content) as answer:
            try:
                return await answer.read()
            except _BROKEN as error:
                raise _unanswered(f"{method} {path}", error) from error

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        parameters: Parameters | None,
        patience: ClientTimeout,
        body: Body | None = None,
        content: str = _JSON,
    ) -> AsyncIterator[ClientResponse]:
        """Send a request and give its answer while it is open; closed in every case."""
        request = f"{method} {path}"
        url = f"{self._base}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        answer: ClientResponse | None = None
        try:
            try:
                sent: Any = await self._rest.request(  # type: ignore[no-untyped-call]
                    method,
                    url,
                    headers={"Accept": _JSON, "Content-Type": content, **await self._authorisation()},
                    body=body,
                    _request_timeout=patience,
                )
                answer = sent.response
                assert answer is not None
                if answer.status == HTTPStatus.UNAUTHORIZED:
                    await self._renew()
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    raise from_body(
                        await answer.read(),
                        status=answer.status,
                        request=request,
                        retry_after=_seconds(answer.headers.get("Retry-After")),
                    )
            except (*_BROKEN, ConfigException) as error:
                raise _unanswered(request, error) from error
            yield answer
        finally:
            if answer is not None:
                _break_off(answer)

    async def _renew(self) -> None:
        """Read our credentials again for the next request.

        The token of a service account is renewed by the clock, and a clock that was put back would keep
        one that has expired.
        """
        if self._find_again is None:
            return
        try:
            found = await self._find_again()
        except Unusable as error:
            log.warning("the credentials for the API server cannot be read again", error=str(error))
            return
        self._configuration.api_key = found.api_key
        self._configuration.refresh_api_key_hook = found.refresh_api_key_hook

    async def _authorisation(self) -> dict[str, str]:
        """Return the header that says who we are; a service account's token is read anew each minute."""
        token = (await self._configuration.auth_settings()).get("BearerToken", {}).get("value")
        return {"Authorization": token.strip()} if token else {}


def _break_off(answer: ClientResponse) -> None:
    """End an answer; one that was read whole has given its connection back already.

    That of a watch that is left early is of no use to anybody, and is not to linger until the server has
    taken leave of it under TLS either: who closes the `Api` may end the event loop next.
    """
    connection = answer.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    answer.close()


def _unanswered(request: str, error: BaseException) -> ApiError:
    what = str(error) or type(error).__name__
    return ApiError(NO_ANSWER, "", what, request=request)


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else min(300.0, max(0.0, float(header)))
    except ValueError:
        return None
