"""What the agent does by itself: give back, watch, keep the pages alive, end when idle.

No loop ends at a fault: it is logged, and the next round tries again. What is `Fatal` ends them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import structlog

from gaia_plugin.agent.node import LocalNode
from gaia_plugin.agent.readings import Figures
from gaia_plugin.errors import Fatal, Refusal, Unusable
from gaia_plugin.ledger import SlotRecord
from gaia_plugin.slots.usage import Usage
from gaia_plugin.units import units_up

log = structlog.get_logger(__name__)

DRAIN_EVERY: Final = 0.2
OBSERVE_EVERY: Final = 1.0
SYNC_EVERY: Final = 10.0
ALARM_EVERY: Final = 0.5


async def repeat(name: str, every: float, step: Callable[[], Awaitable[None]]) -> None:
    """Run `step` again and again, with `every` seconds between; never end.

    Raises:
        Fatal: the process has to end.
    """
    while True:
        try:
            await step()
        except Fatal:
            raise
        except (Refusal, Unusable) as error:
            log.warning("put off", loop=name, why=str(error))
        except Exception:
            log.exception("failed", loop=name)
        await asyncio.sleep(every)


async def drain(node: LocalNode) -> None:
    """Give back what draining slots no longer use; waits while none drains."""
    await node.drain_wanted.wait()
    await node.drain_unsettled(at_once=1)


async def share(node: LocalNode) -> None:
    """Divide the cards' time anew among the slots, and leave a sign of life in each page."""
    await node.do(node.core.share)


async def observe(node: LocalNode) -> None:
    """Take one sample of every slot: overheads into the pages, lies into the ledger."""
    before = await node.do(_claims, node)
    cards = {part.card for record, _ in before for part in record.slices}
    figures = await node.ask(node.reader.figures, sorted(cards)) if cards else {}
    for slot in await node.do(_account, node, before, figures):
        node.drain_wanted.set()
        node.touch(slot)
    for record in await node.do(node.core.unclaimed):
        log.info("not claimed", slot=record.slot)
        await node.release_quietly(record)


def _claims(node: LocalNode) -> list[tuple[SlotRecord, Usage]]:
    """Read what all slots claim."""
    return [(record, node.core.directories.usage(record.slot)) for record in node.core.ledger.slots()]


def _account(node: LocalNode, before: list[tuple[SlotRecord, Usage]], figures: Figures) -> list[str]:
    """Put the driver's figures beside the claims; return the slots that hold more than they did."""
    raised = []
    named = {process.pid for _, usage in before for process in usage.processes}
    strangers = {pid for listed in figures.values() for pid in listed} - named
    for record, usage in before:
        if usage.processes:
            node.core.accounts.observe(record, usage, figures)
        # whoever keeps a process out of its page is found all the same
        members = node.core.directories.members
        pids = {process.pid for process in usage.processes}
        outside = {pid for pid in strangers if members.contains(record.slot, pid)}
        node.core.accounts.outside(
            record.slot, {part.card: _only(figures.get(part.card, {}), outside) for part in record.slices}
        )
        pids |= outside
        for part in record.slices:
            listed = figures.get(part.card, {})
            used = sum(figure or 0 for pid, figure in listed.items() if pid in pids)
            with contextlib.suppress(Refusal):
                if node.core.found(record, part.card, units_up(used)):
                    raised.append(record.slot)
    return raised


def _only(listed: Mapping[int, int | None], pids: Collection[int]) -> dict[int, int | None]:
    return {pid: figure for pid, figure in listed.items() if pid in pids}


async def sync(node: LocalNode) -> None:
    """Tell the ledger which cards there are now."""
    await node.do(node.core.sync, await node.ask(node.reader.inventory))


async def alarm(node: LocalNode, look: Callable[[], Awaitable[None]]) -> None:
    """Look at the cards at once when one of them fell sick."""
    if node.reader.alarmed():
        await look()


async def until_idle(node: LocalNode, seconds: float) -> None:
    """Return when there was neither slot nor client for so long."""
    since = time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(min(0.2, seconds / 4))
        if node.connections or await node.do(lambda: len(node.core.ledger.slots())):
            since = time.monotonic()
