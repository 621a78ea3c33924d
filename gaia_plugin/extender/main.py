"""One extender from its start to its end."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
import uvicorn

from gaia_plugin.errors import Unusable
from gaia_plugin.extender.app import make_app
from gaia_plugin.extender.binding import Binder
from gaia_plugin.extender.choose import Chooser
from gaia_plugin.extender.habits import Habits
from gaia_plugin.extender.kinds import Machine, Machines, SlimGpuNodes
from gaia_plugin.extender.retry import Refusals, Retrier
from gaia_plugin.extender.service import Service
from gaia_plugin.extender.settings import ExtenderSettings
from gaia_plugin.extender.snapshot import Snapshot
from gaia_plugin.extender.sweeper import Sweeper
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.gpunode import GpuNode
from gaia_plugin.kube.pods import Pod, Pods
from gaia_plugin.kube.reflector import Reflector
from gaia_plugin.logs import configure_logs
from gaia_plugin.placement.cluster import Options, Rule

log = structlog.get_logger(__name__)

HOST: Final = "127.0.0.1"
"""There is no other: who may ask for a bind could bind anything anywhere."""

_KEEP_ALIVE: Final = 300
_GARBAGE: Final = (50_000, 20, 100)
"""Thresholds of the collector: at 5,000 nodes a full collection takes longer than a hundred answers."""

_TURN_SECONDS: Final = 0.001
"""How long an answer waits for its turn while prices are made in a thread; Python's own is 5 ms."""


@dataclass(frozen=True, slots=True)
class Extender:
    """The parts of an extender that runs."""

    snapshot: Snapshot
    chooser: Chooser
    habits: Habits
    binder: Binder
    service: Service
    pods: Reflector[Pod]
    gpunodes: Reflector[GpuNode]
    machines: Reflector[Machine]
    sweeper: Sweeper
    retrier: Retrier

    @property
    def synced(self) -> bool:
        """Tell whether all three lists are in."""
        return all(each.synced.is_set() for each in (self.pods, self.gpunodes, self.machines))


def make_extender(api: Api, settings: ExtenderSettings) -> Extender:
    """Wire an extender; nothing of it runs yet."""
    domain = settings.domain
    snapshot = Snapshot(domain, stale_seconds=settings.stale_seconds)
    pods: Reflector[Pod] = Reflector(api, Pods(domain, everything=False))
    gpunodes: Reflector[GpuNode] = Reflector(api, SlimGpuNodes(domain))
    machines: Reflector[Machine] = Reflector(api, Machines())
    chooser, refusals = Chooser(snapshot, Options(Rule(settings.placement))), Refusals()
    habits = Habits(chooser.fleet, domain)
    binder = Binder(api, snapshot, observe=gpunodes.observe, cost=chooser.fleet.cost)
    synced = [pods.synced, gpunodes.synced, machines.synced]
    service = Service(snapshot, chooser, binder, lambda: all(each.is_set() for each in synced), refusals)
    sweeper = Sweeper(
        api, snapshot, pods.store, busy=binder.busy, observe=gpunodes.observe,
        unbound_seconds=settings.unbound_seconds,
    )  # fmt: skip
    retrier = Retrier(api, snapshot, chooser, refusals, busy=binder.busy, active=service.active)
    machines.subscribe(snapshot.machine_changed)
    gpunodes.subscribe(snapshot.gpunode_changed)
    pods.subscribe(snapshot.pod_changed)
    pods.subscribe(sweeper.pod_changed)
    pods.subscribe(refusals.pod_changed)
    pods.subscribe(habits.pod_changed)
    return Extender(snapshot, chooser, habits, binder, service, pods, gpunodes, machines, sweeper, retrier)


@asynccontextmanager
async def running(extender: Extender) -> AsyncIterator[None]:
    """Run the watches, and what depends on them once they are synced; ended at the end of the block."""

    async def once_synced() -> None:
        for each in (extender.pods, extender.gpunodes, extender.machines):
            await each.synced.wait()
        extender.habits.due.set()
        extender.chooser.fleet.now()
        # what is there now stays for long: no collection need look at it again
        gc.collect()
        gc.freeze()
        log.info("synced", nodes=len(extender.snapshot.nodes), pods=len(extender.pods.store))
        async with asyncio.TaskGroup() as group:
            group.create_task(extender.habits.run(), name="prices")
            group.create_task(extender.sweeper.run(), name="sweep")
            extender.retrier.begin()
            group.create_task(extender.retrier.run(), name="retry")

    tasks = [
        asyncio.create_task(each, name=name)
        for name, each in (
            ("pods", extender.pods.run()),
            ("gpunodes", extender.gpunodes.run()),
            ("machines", extender.machines.run()),
            ("after", once_synced()),
        )
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await extender.binder.close()


@asynccontextmanager
async def listening(extender: Extender, port: int) -> AsyncIterator[int]:
    """Serve kube-scheduler on 127.0.0.1; give the port.

    Raises:
        Unusable: the port is taken.
    """
    # the protocol is named because asyncio switches Nagle's delay off only where it is: 44 ms an answer
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise Unusable(
                f"The extender cannot listen on {HOST}:{port}: {error.strerror}. "
                "Set GAIA_EXTENDER_PORT to a free port, and the same port in the scheduler's configuration."
            ) from error
        listener.listen(128)
        config = uvicorn.Config(
            make_app(extender.service), ws="none", lifespan="off", log_config=None, access_log=False,
            timeout_keep_alive=_KEEP_ALIVE, server_header=False, date_header=False,
        )  # fmt: skip
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        try:
            yield int(listener.getsockname()[1])
        finally:
            server.should_exit = True
            server.force_exit = True
            await asyncio.gather(task, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn's server without its hands on the signals: they are ours."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def serve_extender(settings: ExtenderSettings) -> int:
    """Be the extender until a signal ends it; return the exit code."""
    configure_logs()
    try:
        asyncio.run(_run(settings))
    except Unusable as unusable:
        sys.stderr.write(f"gaia: {unusable}\n")
        return 1
    return 0


async def _run(settings: ExtenderSettings) -> None:
    stop = asyncio.Event()
    gc.set_threshold(*_GARBAGE)
    sys.setswitchinterval(_TURN_SECONDS)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        api = await Api.connect(settings.kubeconfig)
        stack.push_async_callback(api.close)
        extender = make_extender(api, settings)
        await stack.enter_async_context(running(extender))
        port = await stack.enter_async_context(listening(extender, settings.extender_port))
        log.info("serving", host=HOST, port=port)
        await stop.wait()
        log.info("ending")
