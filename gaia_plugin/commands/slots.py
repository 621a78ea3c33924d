"""`gaia slots`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gaia_plugin.commands.common import (
    JsonOption,
    StateOption,
    agents,
    console,
    memory,
    print_json,
    table_of,
    title,
    with_state,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gaia_plugin.api.models import Amounts, Slot

    Found = Sequence[tuple[Path, Sequence[Slot]]]

EVERY: Final = 1.0
"""Seconds between two looks; what is used is measured over as long."""

NONE: Final = "There are no slots."


def slots(
    state: StateOption = None,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second, until Control-C.")] = False,
) -> None:
    """List the slots, and what each uses and may use.

    Of each slot: its state, memory and compute as used / limit, its share of compute, how much of the
    last second its kernels had to wait, the memory held on the card (more than granted while a shrink
    waits for memory to be freed), and how far it could grow now. An elastic slot's compute limit is
    above its share while its card is idle. On a node, instead: pod and container, what was requested,
    what is granted now, held and used; `gaia resize` takes POD, or POD:CONTAINER where it has several.
    With --watch and --json every look is one line of JSON.
    """
    found = _look(state)
    if watch:
        try:
            _follow(state, found, json)
        except KeyboardInterrupt:
            return
    elif json:
        print_json(_plain(found))
    else:
        _print(found)


def _look(state: Path | None) -> Found:
    return [(where, node.slots()) for where, node in agents(state)]


def _plain(found: Found) -> list[dict[str, object]]:
    return [slot for where, listed in found for slot in with_state(where, listed)]


def _print(found: Found) -> None:
    if not any(listed for _, listed in found):
        sys.stdout.write(f"{NONE}\n")
        return
    screen = console()
    for part in _tables(found):
        screen.print(part)


def _follow(state: Path | None, found: Found, json: bool) -> None:
    from rich.console import Group
    from rich.live import Live

    from gaia_plugin.errors import Refusal, Unusable

    if json:
        while True:
            _line(found)
            time.sleep(EVERY)
            try:
                found = _look(state)
            except (Refusal, Unusable):
                found = []  # an agent may come back; programs see that there is none now
    screen = console()
    if not screen.is_terminal:  # a live table is drawn over itself; a file gets one table after another
        parts = _shown(found)
        while True:
            for part in parts:
                screen.print(part)
            sys.stdout.flush()
            time.sleep(EVERY)
            parts = _again(state)
    with Live(Group(*_shown(found)), console=screen, auto_refresh=False) as live:
        while True:
            time.sleep(EVERY)
            live.update(Group(*_again(state)), refresh=True)


def _shown(found: Found) -> list[RenderableType]:
    return _tables(found) or [NONE]


def _again(state: Path | None) -> list[RenderableType]:
    """Return what there is to show now; why nothing answers, where that is so."""
    from rich.markup import escape

    from gaia_plugin.errors import Refusal, Unusable

    try:
        return _shown(_look(state))
    except (Refusal, Unusable) as error:
        return [escape(str(error))]


def _line(found: Found) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(_plain(found)).decode() + "\n")
    sys.stdout.flush()


_SINGLE: Final = (
    *("slot", "state", "memory", "compute", "share", "throttled", "held", "could grow to", "cards"),
)
_PODS: Final = (
    *("pod", "container", "state", "requested", "granted", "held", "used", "compute", "throttled"),
    *("could grow to", "cards"),
)


def _tables(found: Found) -> list[RenderableType]:
    from rich.markup import escape

    shown: list[RenderableType] = []
    for where, listed in found:
        if not listed:
            continue
        pods = any(slot.label for slot in listed)
        rows = [_pod_row(slot) if pods else _row(slot) for slot in listed]
        shown.append(table_of(f"Slots of the agent in {where}", _PODS if pods else _SINGLE, rows))
        for slot in listed:
            said = (slot.note, "" if slot.time is None else slot.time.note)
            shown += [f"{escape(title(slot, listed) or slot.slot)}: {escape(note)}" for note in said if note]
    return shown


def _row(slot: Slot) -> tuple[str, ...]:
    return (
        slot.slot,
        slot.state,
        f"{memory(slot.used)} / {memory(slot.granted.memory)}",
        _time(slot),
        f"{slot.granted.cores} % {slot.compute}",
        _throttled(slot),
        memory(slot.held.memory),
        memory(slot.could_reach.memory),
        _cards(slot),
    )


def _pod_row(slot: Slot) -> tuple[str, ...]:
    return (
        slot.label or slot.slot,
        slot.name,
        slot.state,
        _both(slot.requested),
        f"{_both(slot.granted)} {slot.compute}",
        _both(slot.held),
        memory(slot.used),
        _time(slot),
        _throttled(slot),
        _both(slot.could_reach),
        _cards(slot),
    )


def _both(amounts: Amounts) -> str:
    return f"{memory(amounts.memory)}, {amounts.cores} %"


def _time(slot: Slot) -> str:
    return "" if slot.time is None else f"{percent(slot.time.used)} / {percent(slot.time.limit)} %"


def _throttled(slot: Slot) -> str:
    return "" if slot.time is None else f"{percent(slot.time.throttled)} %"


def _cards(slot: Slot) -> str:
    return ", ".join(str(card.index) for card in slot.cards)


def percent(permille: int) -> str:
    """Write permille as percent for people: ``25``, ``33.5``."""
    whole, tenth = divmod(permille, 10)
    return f"{whole}.{tenth}" if tenth else str(whole)
