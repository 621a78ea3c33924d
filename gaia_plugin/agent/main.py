"""One agent from its lock to its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import structlog

from gaia_plugin import paths
from gaia_plugin.agent import compute, loops
from gaia_plugin.agent.alarm import Alarm
from gaia_plugin.agent.contexts import context_bytes
from gaia_plugin.agent.core import Core
from gaia_plugin.agent.gauge import Gauge
from gaia_plugin.agent.lock import LOCKED, StateLock, Taken
from gaia_plugin.agent.node import LocalNode
from gaia_plugin.agent.readings import Reader, inventory
from gaia_plugin.api import whose
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.gpu import Gpus
from gaia_plugin.gpu.nvml import Nvml
from gaia_plugin.ledger import Ledger
from gaia_plugin.logs import configure_logs
from gaia_plugin.metrics.address import Address
from gaia_plugin.metrics.tally import Tally
from gaia_plugin.sim import leave
from gaia_plugin.slots import limits
from gaia_plugin.slots.directory import SlotDirectories

log = structlog.get_logger(__name__)


def serve(
    state: Path,
    driver: Path | None,
    *,
    idle_exit: float | None = None,
    compute_ceiling: int = 100,
    metrics: Address | None = None,
) -> int:
    """Be the agent of `state` until a signal ends it; return the exit code.

    Args:
        state: the state directory, made if it is missing.
        driver: the driver's directory; None: the system's.
        idle_exit: end after so many seconds without slots and clients; None: never.
        compute_ceiling: percent of a card's time that its elastic slots may have in all.
        metrics: where they are served; None: nowhere.
    """
    return guarded(state, lambda: _locked(state, driver, idle_exit, compute_ceiling, metrics))


def guarded(state: Path, run: Callable[[], int]) -> int:
    """Run an agent of `state`; what ends it becomes one sentence on stderr and an exit code."""
    configure_logs()
    os.umask(0o077)
    try:
        return run()
    except Taken as taken:
        sys.stderr.write(f"gaia: {taken}\n")
        return LOCKED
    except Refusal as refusal:
        sys.stderr.write(f"gaia: {refusal.sentence}\n")
    except Unusable as unusable:
        sys.stderr.write(f"gaia: {unusable}\n")
    except OSError as error:
        # a full disk, or something foreign where one of its files belongs
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"gaia: The agent cannot work in {state}: {error.strerror or error}{where}.\n")
    return 1


def _locked(
    state: Path, driver: Path | None, idle_exit: float | None, compute_ceiling: int, metrics: Address | None
) -> int:
    with ExitStack() as stack:
        lock = StateLock.take(state)
        stack.callback(lock.release)
        directory = paths.check_driver(driver) if driver is not None else paths.system_driver()
        stack.callback(leave, directory)
        gpus = Nvml(directory)
        stack.callback(gpus.close)
        alarm = Alarm(gpus)
        alarm.start()
        stack.callback(alarm.close)
        core = _core(state, directory, gpus, compute_ceiling)
        stack.callback(core.close)
        tell_who(state, directory)
        asyncio.run(_run(core, Reader(gpus, core.directories.members, alarm), idle_exit, metrics))
    return 0


def _core(state: Path, driver: Path, gpus: Gpus, compute_ceiling: int) -> Core:
    found = inventory(gpus)
    context = context_bytes(state, driver, found.cards, gpus)
    directories = SlotDirectories(
        state,
        paths.shadow("local"),
        context_bytes=context,
        compute_ceiling=compute_ceiling * limits.PPM_OF_CORE,
    )
    ledger = Ledger(state / "ledger.sqlite")
    return Core(state, driver, found, ledger, directories, context, Gauge(gpus))


def tell_who(state: Path, driver: Path | None, **more: object) -> None:
    """Leave a note for people and for `gaia doctor` of who serves this state directory; `more` is in it."""
    note = {"pid": os.getpid(), "driver": None if driver is None else str(driver), **more}
    aside = state / f"{whose.NOTE}.new"
    aside.write_text(json.dumps(note) + "\n")
    aside.rename(state / whose.NOTE)


async def _run(core: Core, reader: Reader, idle_exit: float | None, metrics: Address | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with ThreadPoolExecutor(1, "core") as work, ThreadPoolExecutor(1, "driver") as asking:
        tally = Tally()
        node = LocalNode(core, reader, work, asking, meter=tally)
        try:
            async with _metrics(node, tally, metrics):
                await node.open()
                log.info("serving", state=str(core.state), driver=str(core.driver), pid=os.getpid())
                await _until_ended(node, stop, idle_exit)
        finally:
            await node.close()


def _metrics(node: LocalNode, tally: Tally, address: Address | None) -> AbstractAsyncContextManager[object]:
    if address is None:
        return nullcontext()
    # only now: what they need takes a moment to load, and hardly anybody on a single machine asks for them
    from gaia_plugin.agent.figures import Figures
    from gaia_plugin.metrics.page import Page
    from gaia_plugin.metrics.serve import told

    return told(Page(Figures(node, tally).snapshot), address)


async def _until_ended(node: LocalNode, stop: asyncio.Event, idle_exit: float | None) -> None:
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(loops.repeat("drain", loops.DRAIN_EVERY, lambda: loops.drain(node))),
            group.create_task(loops.repeat("observe", loops.OBSERVE_EVERY, lambda: loops.observe(node))),
            group.create_task(loops.repeat("share", compute.EVERY, lambda: loops.share(node))),
            group.create_task(loops.repeat("sync", loops.SYNC_EVERY, lambda: loops.sync(node))),
            group.create_task(
                loops.repeat("alarm", loops.ALARM_EVERY, lambda: loops.alarm(node, lambda: loops.sync(node)))
            ),
        ]
        ends: set[asyncio.Task[Any]] = {group.create_task(stop.wait())}
        if idle_exit is not None:
            ends.add(group.create_task(loops.until_idle(node, idle_exit)))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        log.info("ending", reason="signal" if stop.is_set() else "idle")
        for task in [*running, *ends]:
            task.cancel()
