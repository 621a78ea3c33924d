"""JupyterHub's proxy inside the hub process: no second program, no Node.

Set ``c.JupyterHub.proxy_class = "gaia-embedded"``. Meant for one machine: it ends with the hub, so
a restart of the hub interrupts the connections of running servers.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp
from aiohttp import web
from jupyterhub.proxy import Proxy
from traitlets import Bool

from gaia_hub.embedded.forward import LONGEST_LINE, Forwarder, origin_form
from gaia_hub.embedded.routes import RouteTable


class EmbeddedProxy(Proxy):  # type: ignore[misc]
    """A reverse proxy on the hub's own event loop; streams both ways and passes websockets."""

    trust_forwarded = Bool(
        False,
        help="""
        Keep the `X-Forwarded-*` headers of a request. Set this only if the hub is reached through
        another proxy of yours and in no other way; otherwise anybody may claim any address.
        """,
    ).tag(config=True)

    _runner: web.ServerRunner | None = None
    _forwarder: Forwarder | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._routes = RouteTable()

    # JupyterHub's side

    async def start(self) -> None:
        """Listen at JupyterHub's public address.

        Raises:
            OSError: the address cannot be had, for example because the port is in use.
        """
        self._forwarder = Forwarder(self._error_page, trusted=self.trust_forwarded)
        server = web.Server(
            self._handle,
            handler_cancellation=True,  # a browser that goes away ends its request at the backend
            access_log=None,
            auto_decompress=False,
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            tcp_keepalive=True,
        )
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=2.0)
        await self._runner.setup()
        await self._site(self._runner).start()
        self.log.info("Embedded proxy listens at %s", self.public_url)

    def _site(self, runner: web.ServerRunner) -> web.BaseSite:
        address = urlsplit(self.public_url)
        if address.scheme == "http+unix":
            path = Path(unquote(address.netloc))
            path.unlink(missing_ok=True)
            return web.UnixSite(runner, str(path))
        context = None
        if self.ssl_cert:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.ssl_cert, self.ssl_key or None)
        port = address.port or (443 if address.scheme == "https" else 80)
        return web.TCPSite(runner, address.hostname or None, port, ssl_context=context)

    async def stop(self) -> None:
        """Stop listening and close what is open."""
        runner, self._runner = self._runner, None
        forwarder, self._forwarder = self._forwarder, None
        if runner is not None:
            await runner.cleanup()
        if forwarder is not None:
            await forwarder.close()

    async def add_route(self, routespec: str, target: str, data: dict[str, Any]) -> None:
        """Send what begins with `routespec` to `target`."""
        self._routes.add(self.validate_routespec(routespec), target, data)

    async def delete_route(self, routespec: str) -> None:
        """Remove a route; one that is not there is no error."""
        routespec = self.validate_routespec(routespec)
        route = self._routes.get(routespec)
        self._routes.remove(routespec)
        if route is not None and self._forwarder is not None and route.target.startswith("http+unix:"):
            await self._forwarder.forget(route.target)

    async def get_all_routes(self) -> dict[str, dict[str, Any]]:
        """Return every route, with the time of its last request as ``last_activity``."""
        return {spec: route.as_jupyterhub() for spec, route in self._routes.all().items()}

    # the browser's side

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._forwarder is None:
            return web.Response(status=503, text="The hub is stopping.\n")
        if request.method == "CONNECT":
            return web.Response(status=405, text="This is no forward proxy.\n")
        route = self._routes.find(request.host if self.host_routing else "", origin_form(request.raw_path))
        if route is None:
            return await self._error_page(request, 404)
        route.last_activity = datetime.now(UTC)
        try:
            return await self._forwarder.forward(request, route.target)
        finally:
            route.last_activity = datetime.now(UTC)

    async def _error_page(self, request: web.BaseRequest, status: int) -> web.StreamResponse:
        """Return the hub's own page for an error, or plain words if the hub does not answer either."""
        target = getattr(self.hub, "host", "") if self.hub is not None else ""
        if target and self._forwarder is not None:
            path = f"{self.hub.base_url}error/{status}?url={quote(origin_form(request.raw_path), safe='')}"
            try:
                page = await asyncio.wait_for(self._forwarder.fetch(target, path), 5)
            except (aiohttp.ClientError, OSError, TimeoutError):
                self.log.warning("The hub does not answer for an error page")
            else:
                return web.Response(status=status, body=page, content_type="text/html", charset="utf-8")
        words = f"{status} {HTTPStatus(status).phrase}"
        return web.Response(
            status=status,
            content_type="text/html",
            text=f"<!doctype html><title>{escape(words)}</title><h1>{escape(words)}</h1>\n",
        )
