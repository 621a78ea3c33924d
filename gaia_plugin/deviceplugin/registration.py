"""Keeps plugins registered with a kubelet that comes, goes, restarts and deletes sockets.

The kubelet deletes every socket of its directory when it starts, makes a new `kubelet.sock` and knows no
plugin any more. Pods keep running meanwhile, so there is nothing to do but to serve anew and to register.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import grpc.aio
import structlog

from gaia_plugin.deviceplugin import sockets
from gaia_plugin.deviceplugin.plugin import VERSION, Plugin
from gaia_plugin.deviceplugin.proto.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

POLL: Final = 0.2
"""Seconds between two looks at the sockets: two calls of stat(2) for each plugin."""

PATIENCE: Final = 5.0
"""Seconds that a registered plugin waits for the kubelet to open its list before it registers again."""

_LONGEST_WAIT: Final = 1.0
_ANSWER: Final = 5.0
_log = structlog.get_logger()


async def keep_registered(
    plugins: Sequence[Plugin],
    kubelet: Path,
    *,
    poll: float = POLL,
    on_registered: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve `plugins` and keep them registered until cancelled; the sockets are removed then.

    Args:
        plugins: each is served on its own socket.
        kubelet: the kubelet's directory; it need not exist yet.
        poll: seconds between two looks.
        on_registered: called with the resource after each registration.

    Raises:
        Unusable: the kubelet's directory is too long for a unix socket.
    """
    for plugin in plugins:
        sockets.target(plugin.socket.with_name(f".{plugin.endpoint}"))
    async with asyncio.TaskGroup() as group:
        for plugin in plugins:
            group.create_task(_keep(plugin, sockets.registration_socket(kubelet), poll, on_registered))


async def register(plugin: Plugin, socket: Path) -> None:
    """Tell the kubelet behind `socket` of `plugin`, which serves already.

    Raises:
        grpc.aio.AioRpcError: the kubelet is not there or refuses.
    """
    request = api_pb2.RegisterRequest(
        version=VERSION, endpoint=plugin.endpoint, resource_name=plugin.resource, options=plugin.options
    )
    async with sockets.channel(socket) as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=_ANSWER)


async def tell_missing(kubelet: Path, *, poll: float = POLL) -> None:
    """Say once that there is no kubelet in its directory `kubelet`, and again when it has come and gone."""
    socket, said = sockets.registration_socket(kubelet), False
    while True:
        missing = sockets.identity(socket) is None
        if missing and not said:
            _log.warning("no kubelet yet; its socket is waited for", socket=str(socket))
        said = missing
        await asyncio.sleep(poll)


async def _keep(plugin: Plugin, kubelet: Path, poll: float, on_registered: Callable[[str], None]) -> None:
    log = _log.bind(resource=plugin.resource)
    state = _State()
    try:
        while True:
            there = sockets.identity(kubelet)
            if there is not None and state.due(there, plugin):
                try:
                    if not plugin.serving:
                        await plugin.serve()
                    await _while_there(register(plugin, kubelet), kubelet, there, poll)
                except (grpc.aio.AioRpcError, OSError, RuntimeError) as fault:
                    if state.failed(there, poll):
                        log.warning("not registered with the kubelet yet", fault=_words(fault))
                else:
                    state.registered(there)
                    log.info("registered with the kubelet")
                    on_registered(plugin.resource)
            await asyncio.sleep(poll)
    finally:
        await plugin.stop()


async def _while_there(
    call: Coroutine[Any, Any, None], kubelet: Path, there: sockets.Identity, poll: float
) -> None:
    """Await `call`, but give it up when the kubelet that it goes to has gone."""
    task = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait([task], timeout=poll))[0]:
            if sockets.identity(kubelet) != there:
                raise ConnectionResetError("the kubelet has gone meanwhile")
        task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


class _State:
    """With which kubelet a plugin is registered, and when to try again."""

    def __init__(self) -> None:
        self._with: sockets.Identity | None = None
        self._since = 0.0
        self._failed_with: sockets.Identity | None = None
        self._not_before = 0.0
        self._wait = 0.0

    def due(self, kubelet: sockets.Identity, plugin: Plugin) -> bool:
        """Return whether it is time to register."""
        now = time.monotonic()
        if kubelet == self._failed_with and now < self._not_before:
            return False  # that kubelet has just refused; a new one is tried at once
        if kubelet != self._with or not plugin.serving:
            return True
        # The kubelet drops a plugin for good when its list breaks off, and leaves both sockets alone.
        return min(plugin.unwatched, now - self._since) > PATIENCE

    def registered(self, kubelet: sockets.Identity) -> None:
        """Note a success."""
        self._with, self._since = kubelet, time.monotonic()
        self._failed_with, self._wait = None, 0.0

    def failed(self, kubelet: sockets.Identity, poll: float) -> bool:
        """Note a failure; return whether it is the first with this kubelet."""
        first = kubelet != self._failed_with
        self._wait = poll if first else min(2 * self._wait, _LONGEST_WAIT)
        self._with, self._failed_with = None, kubelet
        self._not_before = time.monotonic() + self._wait
        return first


def _words(fault: Exception) -> str:
    if isinstance(fault, grpc.aio.AioRpcError):
        return f"{fault.code().name}: {fault.details()}"
    return str(fault)
