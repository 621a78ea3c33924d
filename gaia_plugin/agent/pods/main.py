"""One agent of a Kubernetes node from its lock to its end."""

from __future__ import annotations

import asyncio
import secrets
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import structlog

from gaia_plugin import paths
from gaia_plugin.agent import compute, loops
from gaia_plugin.agent.contexts import context_bytes
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.agent.lock import StateLock
from gaia_plugin.agent.main import guarded, tell_who
from gaia_plugin.agent.pods.advertised import Lists
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.kubelet import KubeletCheckpoint
from gaia_plugin.agent.pods.node import PodNode
from gaia_plugin.agent.pods.server import NodeServer
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.agent.pods.specs import SlotSpecs
from gaia_plugin.agent.readings import Reader, inventory
from gaia_plugin.agent.settings import AgentSettings
from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.plugin import Plugin
from gaia_plugin.deviceplugin.registration import keep_registered
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.gpu import Gpus
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod, Pods
from gaia_plugin.kube.reflector import Reflector
from gaia_plugin.ledger import Ledger, LedgerDamaged
from gaia_plugin.ledger.allocations import Allocations
from gaia_plugin.sim import leave
from gaia_plugin.slots import limits
from gaia_plugin.slots.cdi import runtime
from gaia_plugin.slots.cdi.files import SpecFiles
from gaia_plugin.slots.cdi.find import find_driver
from gaia_plugin.slots.container import ContainerDirectories
from gaia_plugin.slots.mounts import Mounts

log = structlog.get_logger(__name__)

RECONCILE_EVERY: Final = 1.0
SWEEP_PAUSE: Final = 0.2
"""Seconds between two sweeps at the least: pods change many times a second while many start."""

TIDY_EVERY: Final = 60.0
DRIVER_EVERY: Final = 2.0
"""Seconds between two looks for a driver that is not there yet: NVML comes late at boot."""

_RUNTIME_PATIENCE: Final = 2.0
"""Seconds that registration waits to hear of the runtime; without an API server it goes on."""


def serve_pods(settings: AgentSettings, *, mounts: Mounts | None = None) -> int:
    """Be the agent of this node until a signal ends it; return the exit code.

    Args:
        settings: what it was told.
        mounts: who mounts the usage pages; None: the kernel.
    """
    return guarded(settings.state, lambda: _locked(settings, mounts))


def _locked(settings: AgentSettings, mounts: Mounts | None) -> int:
    lock = StateLock.take(settings.state)
    try:
        asyncio.run(_run(settings, mounts))
    finally:
        lock.release()
    return 0


async def _run(settings: AgentSettings, mounts: Mounts | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        found = await _until_driver(settings.driver, stop)
        if found is None:
            return
        directory, gpus = found
        stack.callback(leave, directory)
        stack.callback(gpus.close)
        core = make_core(settings, directory, gpus, mounts)
        stack.callback(core.close)
        api = await Api.connect(settings.kubeconfig)
        stack.push_async_callback(api.close)
        work, asking = ThreadPoolExecutor(1, "core"), ThreadPoolExecutor(1, "driver")
        stack.callback(work.shutdown)
        stack.callback(asking.shutdown)
        server = NodeServer(api, settings.node_name, settings.domain)
        reflector: Reflector[Pod] = Reflector(api, Pods(settings.domain), field_selector=server.selector)
        node = PodNode(
            core, Reader(gpus, core.directories.members), work, asking,
            sight=Sight(reflector), checkpoint=KubeletCheckpoint(settings.kubelet_dir), server=server,
            no_room_seconds=settings.no_room_seconds,
        )  # fmt: skip
        stack.push_async_callback(node.close)
        plugins = [Plugin(name, settings.kubelet_dir, node) for name in (settings.memory, settings.cores)]
        node.on_devices = Updater(*plugins)
        await node.open()
        tell_who(settings.state, directory)
        log.info("serving", node=settings.node_name, driver=str(directory), slots=len(await node.records()))
        try:
            await _until_ended(node, reflector, plugins, settings, server, stop)
        except* (Refusal, Unusable) as faults:
            raise faults.exceptions[0] from None


async def _until_driver(driver: Path | None, stop: asyncio.Event) -> tuple[Path, Nvml] | None:
    """Return the driver as soon as it is there and lists a card; None when the agent is to end before."""
    said = ""
    while not stop.is_set():
        try:
            directory = paths.check_driver(driver) if driver is not None else paths.system_driver()
            gpus = await asyncio.to_thread(Nvml, directory)
            if await asyncio.to_thread(gpus.cards):
                return directory, gpus
            gpus.close()
            why = "The driver lists no card."
        except (Refusal, Unusable) as error:
            why = str(error)
        if why != said:
            log.warning("waiting for the driver", why=why)
            said = why
        with suppress(TimeoutError):
            async with asyncio.timeout(DRIVER_EVERY):
                await stop.wait()
    return None


def make_core(settings: AgentSettings, driver: Path, gpus: Gpus, mounts: Mounts | None = None) -> PodCore:
    """Return the core of a node: ledger, allocations, directories and specs, opened.

    Raises:
        Unusable: something cannot be opened, or the node has more memory than the kubelet can be told.
    """
    found = inventory(gpus)
    advertise.check_size(sum(card.units for card in found.cards))
    context = context_bytes(settings.state, driver, found.cards, gpus)
    directories = ContainerDirectories(
        settings.state,
        paths.shadow("container"),
        context_bytes=context,
        compute_ceiling=settings.compute_ceiling * limits.PPM_OF_CORE,
        mounts=mounts,
    )
    uuids = [card.uuid for card in sorted(found.cards, key=lambda card: card.index)]
    containers = find_driver(driver, uuids, settings.state, root=settings.driver_root)
    return PodCore(
        settings.state,
        driver,
        found,
        open_ledger(settings.state / "ledger.sqlite"),
        directories,
        context,
        Gauge(gpus),
        allocations=Allocations(settings.state / "allocations.sqlite"),
        specs=SlotSpecs(SpecFiles(settings.cdi_dir, settings.kind), directories, containers),
        node_name=settings.node_name,
        domain=settings.domain,
    )


def open_ledger(path: Path) -> Ledger:
    """Open the ledger; one that is damaged is moved aside, for a node can find it all again.

    Raises:
        Unusable: it cannot be opened, or is of a newer Gaia.
    """
    try:
        return Ledger(path)
    except LedgerDamaged as damaged:
        aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
        log.error(
            "the ledger is damaged; it is made again from what runs", moved=str(aside), why=str(damaged)
        )
        path.rename(aside)
        for companion in ("-wal", "-shm"):
            path.with_name(path.name + companion).unlink(missing_ok=True)
        return Ledger(path)


class Updater:
    """Passes lists of devices on to the two plugins."""

    def __init__(self, memory: Plugin, cores: Plugin) -> None:
        self._memory = memory
        self._cores = cores

    def __call__(self, lists: Lists) -> None:
        """Bring both lists up to date."""
        self._memory.update(lists.memory)
        self._cores.update(lists.cores)


async def _until_ended(
    node: PodNode,
    reflector: Reflector[Pod],
    plugins: list[Plugin],
    settings: AgentSettings,
    server: NodeServer,
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        check = group.create_task(_check_runtime(server, settings))
        running = [
            check,
            group.create_task(reflector.run()),
            group.create_task(_register(plugins, settings.kubelet_dir, check)),
            group.create_task(loops.repeat("drain", loops.DRAIN_EVERY, node.drain_all)),
            group.create_task(loops.repeat("observe", loops.OBSERVE_EVERY, lambda: loops.observe(node))),
            group.create_task(loops.repeat("share", compute.EVERY, lambda: loops.share(node))),
            group.create_task(loops.repeat("sync", loops.SYNC_EVERY, lambda: _sync(node))),
            group.create_task(loops.repeat("reconcile", RECONCILE_EVERY, node.reconcile)),
            group.create_task(loops.repeat("sweep", SWEEP_PAUSE, node.sweep_once)),
            group.create_task(loops.repeat("publish", SWEEP_PAUSE, node.publish_once)),
            group.create_task(loops.repeat("tidy", TIDY_EVERY, node.tidy_once)),
        ]
        await stop.wait()
        log.info("ending", reason="signal")
        for task in running:
            task.cancel()


async def _sync(node: PodNode) -> None:
    await loops.sync(node)
    node.advertise()


async def _register(plugins: list[Plugin], kubelet: Path, check: asyncio.Task[None]) -> None:
    await asyncio.wait([check], timeout=_RUNTIME_PATIENCE)
    await keep_registered(plugins, kubelet)


async def _check_runtime(server: NodeServer, settings: AgentSettings) -> None:
    """Refuse a runtime without CDI as soon as the API server says which one it is.

    Raises:
        Unusable: CDI is switched off.
    """
    if not settings.check_runtime:
        return
    while True:
        try:
            reported = await server.runtime()
        except ApiError as error:
            log.info("the runtime is not known yet", why=str(error))
            await asyncio.sleep(DRIVER_EVERY)
            continue
        doubt = runtime.require(reported, settings.cdi_dir, root=settings.driver_root)
        if doubt:
            log.warning("runtime", doubt=doubt)
        return
