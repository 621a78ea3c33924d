"""One agent of a Kubernetes node from its lock to its end."""

from __future__ import annotations

import asyncio
import secrets
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import structlog

from gaia_plugin import paths
from gaia_plugin.agent import compute, loops
from gaia_plugin.agent.alarm import Alarm
from gaia_plugin.agent.contexts import context_bytes
from gaia_plugin.agent.figures import Figures
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.agent.lock import StateLock, only_one
from gaia_plugin.agent.main import guarded
from gaia_plugin.agent.pods import footing, watchdog
from gaia_plugin.agent.pods.advertised import Lists
from gaia_plugin.agent.pods.core import PodCore
from gaia_plugin.agent.pods.driver import until_driver
from gaia_plugin.agent.pods.kubelet import KubeletCheckpoint
from gaia_plugin.agent.pods.machine import Machine
from gaia_plugin.agent.pods.node import PodNode
from gaia_plugin.agent.pods.note import Note
from gaia_plugin.agent.pods.server import NodeServer
from gaia_plugin.agent.pods.sight import Sight
from gaia_plugin.agent.pods.specs import SlotSpecs
from gaia_plugin.agent.readings import Reader, inventory
from gaia_plugin.agent.settings import AgentSettings
from gaia_plugin.deviceplugin import advertise
from gaia_plugin.deviceplugin.plugin import Plugin
from gaia_plugin.deviceplugin.registration import keep_registered, tell_missing
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.gpu import Gpus
from gaia_plugin.kube.client import Api
from gaia_plugin.kube.errors import ApiError
from gaia_plugin.kube.pods import Pod, Pods
from gaia_plugin.kube.reflector import Backoff, Reflector
from gaia_plugin.ledger import Ledger, LedgerDamaged
from gaia_plugin.ledger.allocations import Allocations
from gaia_plugin.metrics.page import Page
from gaia_plugin.metrics.serve import told_when_possible
from gaia_plugin.metrics.tally import Tally
from gaia_plugin.sim import leave
from gaia_plugin.slots import limits
from gaia_plugin.slots.cdi import runtime, toolkit
from gaia_plugin.slots.cdi.files import SpecFiles
from gaia_plugin.slots.cdi.find import LatestDriver, find_driver
from gaia_plugin.slots.container import ContainerDirectories
from gaia_plugin.slots.mounts import Mounts

log = structlog.get_logger(__name__)

RECONCILE_EVERY: Final = 1.0
SWEEP_PAUSE: Final = 0.2
"""Seconds between two sweeps at the least: pods change many times a second while many start."""

TIDY_EVERY: Final = 60.0
_KUBELET_EVERY: Final = 0.2
_RUNTIME_FIRST: Final = 2.0
_RUNTIME_EVERY: Final = 60.0
"""The longest pause between two questions after the runtime."""

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
        with only_one(settings.kubelet_dir):
            asyncio.run(_run(settings, mounts))
    finally:
        lock.release()
    return 0


async def _run(settings: AgentSettings, mounts: Mounts | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(check_footing, settings)
        note = Note(settings)
        found = await until_driver(settings.driver, settings.driver_root, stop)
        if found is None:
            return
        directory, gpus = found
        note.found(directory)
        stack.callback(leave, directory)
        stack.callback(gpus.close)
        alarm = Alarm(gpus, settings.harmless_xids)
        alarm.start()
        stack.callback(alarm.close)
        core = make_core(settings, directory, gpus, mounts)
        stack.callback(core.close)
        api = await Api.connect(settings.kubeconfig)
        stack.push_async_callback(api.close)
        work, asking = ThreadPoolExecutor(1, "core"), ThreadPoolExecutor(1, "driver")
        stack.callback(work.shutdown)
        stack.callback(asking.shutdown)
        tally = Tally()
        server = NodeServer(api, settings.node_name, settings.domain, tally)
        reflector: Reflector[Pod] = Reflector(api, Pods(settings.domain), field_selector=server.selector)
        node = PodNode(
            core, Reader(gpus, core.directories.members, alarm), work, asking,
            sight=Sight(reflector), checkpoint=KubeletCheckpoint(settings.kubelet_dir), server=server,
            machine=Machine.here(settings.driver_root), api=api,
            no_room_seconds=settings.no_room_seconds, meter=tally,
            evict_unmanaged=settings.evict_unmanaged,
        )  # fmt: skip
        stack.push_async_callback(node.close)
        plugins = [Plugin(name, settings.kubelet_dir, node) for name in (settings.memory, settings.cores)]
        node.on_devices = Updater(*plugins)
        await node.open()
        if settings.metrics_address is not None:
            figures = Figures(node, tally, name=settings.node_name, watched=node.watched)
            page = Page(figures.snapshot)
            await stack.enter_async_context(told_when_possible(page, settings.metrics_address))
        log.info("serving", node=settings.node_name, driver=str(directory), slots=len(await node.records()))
        try:
            await _until_ended(node, reflector, plugins, settings, server, note, stop)
        except* LedgerDamaged as damaged:
            raise Unusable(
                f"The ledger was found damaged ({damaged.exceptions[0]}); the agent makes it again from what "
                "runs when it is started again. Running containers are not touched."
            ) from None
        except* (Refusal, Unusable) as faults:
            raise faults.exceptions[0] from None


def check_footing(settings: AgentSettings) -> None:
    """Refuse a pod in which the agent would not see the node's processes, or the node not its mounts.

    Raises:
        Unusable: says which line its manifest lacks.
    """
    footing.check_pids(settings.kubelet_dir)
    if settings.driver_root != Path("/"):
        footing.check_mounts(settings.state, Path("/proc/self/mountinfo").read_text())


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
    root = settings.driver_root
    containers = LatestDriver(
        lambda: find_driver(driver, uuids, settings.state, root=root),
        [root / each.relative_to("/") for each in toolkit.DIRECTORIES],
    )
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
        return Ledger(path, lazy=True)
    except LedgerDamaged as damaged:
        aside = path.with_name(f"{path.name}.damaged-{secrets.token_hex(4)}")
        log.error(
            "the ledger is damaged; it is made again from what runs", moved=str(aside), why=str(damaged)
        )
        path.rename(aside)
        for companion in ("-wal", "-shm"):
            path.with_name(path.name + companion).unlink(missing_ok=True)
        return Ledger(path, lazy=True)


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
    note: Note,
    stop: asyncio.Event,
) -> None:
    async with asyncio.TaskGroup() as group:
        check = group.create_task(_check_runtime(server, settings))
        running = [
            check,
            group.create_task(reflector.run()),
            group.create_task(tell_missing(settings.kubelet_dir)),
            group.create_task(_register(plugins, settings.kubelet_dir, check, note)),
            group.create_task(loops.repeat("drain", loops.DRAIN_EVERY, node.drain_all)),
            group.create_task(loops.repeat("observe", loops.OBSERVE_EVERY, lambda: loops.observe(node))),
            group.create_task(loops.repeat("share", compute.EVERY, lambda: loops.share(node))),
            group.create_task(loops.repeat("sync", loops.SYNC_EVERY, lambda: _sync(node))),
            group.create_task(
                loops.repeat("alarm", loops.ALARM_EVERY, lambda: loops.alarm(node, lambda: _sync(node)))
            ),
            group.create_task(loops.repeat("reconcile", RECONCILE_EVERY, node.reconcile)),
            group.create_task(loops.repeat("sweep", SWEEP_PAUSE, node.sweep_once)),
            group.create_task(loops.repeat("publish", SWEEP_PAUSE, node.publish_once)),
            group.create_task(loops.repeat("tidy", TIDY_EVERY, node.tidy_once)),
            group.create_task(loops.repeat("watch", watchdog.EVERY, node.watch_once)),
            group.create_task(loops.repeat("desire", SWEEP_PAUSE, node.desire_once)),
            group.create_task(node.write_object()),
        ]
        await stop.wait()
        log.info("ending", reason="signal")
        for task in running:
            task.cancel()


async def _sync(node: PodNode) -> None:
    await loops.sync(node)
    node.advertise()


async def _register(plugins: list[Plugin], kubelet: Path, check: asyncio.Task[None], note: Note) -> None:
    await asyncio.wait([check], timeout=_RUNTIME_PATIENCE)
    # a kubelet that was away at the start is there before anything is advertised
    while not await asyncio.to_thread(footing.check_pids, kubelet):
        await asyncio.sleep(_KUBELET_EVERY)
    await keep_registered(plugins, kubelet, on_registered=note.registered)


async def _check_runtime(server: NodeServer, settings: AgentSettings) -> None:
    """Refuse a runtime without CDI as soon as the API server says which one it is.

    Raises:
        Unusable: CDI is switched off.
    """
    if not settings.check_runtime:
        return
    backoff, said = Backoff(first=_RUNTIME_FIRST, most=_RUNTIME_EVERY), ""
    while True:
        try:
            reported = (await server.facts()).runtime
        except ApiError as error:
            if (why := str(error)) != said:
                log.info("the runtime is not known yet", why=why)
                said = why
            await asyncio.sleep(backoff.next())
            continue
        doubt = runtime.require(reported, settings.cdi_dir, root=settings.driver_root)
        if doubt:
            log.warning("runtime", doubt=doubt)
        return
