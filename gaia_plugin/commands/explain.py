"""`gaia explain`."""

from __future__ import annotations

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
    with_state,
)

if TYPE_CHECKING:
    from rich.console import Console

    from gaia_plugin.api.models import Amounts, CardReason, ContainerReason, Explained


_NOTES: Final = {"reservation": " (reserved)", "unmanaged": ""}


def explain(
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod, as NAMESPACE/POD; default/POD as POD.")],
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Say why a pod of this node has what it has, or why it waits.

    Of each container that asks for a slice: what it asks for, what it has, what it was last refused with,
    what would be granted now instead, what each card lacks for it, and who holds that: what would have to
    be smaller. A pod that no node was found for is explained by its events (kubectl describe pod).
    """
    where, told = _asked(pod if "/" in pod else f"default/{pod}", state)
    if json:
        print_json(with_state(where, [told])[0])
        return
    screen = console()
    heading = f"{told.pod} on {told.node}: {told.phase}"
    screen.print(f"{heading}. {told.sentence}" if told.sentence else heading, markup=False)
    for container in told.containers:
        _print(screen, container)


def _asked(pod: str, state: Path | None) -> tuple[Path, Explained]:
    """Return the first explanation that an agent has."""
    from gaia_plugin.errors import Code, Refusal

    refused: Refusal | None = None
    for where, node in agents(state):
        try:
            return where, node.explain(pod)
        except Refusal as refusal:
            if refusal.code is not Code.NO_SUCH_SLOT:
                raise
            refused = refusal
    assert refused is not None
    raise refused


def _print(screen: Console, told: ContainerReason) -> None:
    rows = [
        ("state", told.state),
        ("asks for", _asks(told)),
        ("may grow to", _both(told.maximum)),
        ("has", "nothing" if told.slot is None else _has(told)),
        ("could get now", _both(told.best) or "nothing"),
        ("why", told.sentence),
    ]
    if told.refused is not None:
        since = f" (first {told.refused.since:.0f} s ago)" if told.refused.since > told.refused.ago else ""
        rows.append(
            (
                "last refused",
                f"{told.refused.ago:.0f} s ago{since}, {told.refused.code}: {told.refused.sentence}",
            )
        )
    screen.print()
    facts = table_of(f"Container {told.container}", ("", ""), [row for row in rows if row[1]])
    facts.show_header = False
    screen.print(facts)
    if told.cards:
        screen.print()
        columns = ("card", "free for it", "lacks", "taken by")
        screen.print(table_of("Its cards", columns, [_row(card) for card in told.cards]))


def _asks(told: ContainerReason) -> str:
    over = f" over {told.cards_wanted} cards" if told.cards_wanted > 1 else ""
    return f"{_both(told.asked)}{over}" if told.asked is not None else ""


def _has(told: ContainerReason) -> str:
    slot = told.slot
    assert slot is not None
    held = "" if slot.held == slot.granted else f", {_both(slot.held)} held"
    return f"{_both(slot.granted)}{held}, {memory(slot.used)} used"


def _both(amounts: Amounts | None) -> str:
    return "" if amounts is None else f"{memory(amounts.memory)} and {amounts.cores} % compute"


def _row(card: CardReason) -> tuple[str, ...]:
    lacks = [memory(card.lacks.memory)] if card.lacks.memory else []
    lacks += [f"{card.lacks.cores} % compute"] if card.lacks.cores else []
    taken = [
        f"{holder.name} {_both(holder.amounts)}" + _NOTES.get(holder.kind, f" ({memory(holder.used)} used)")
        for holder in card.holders
    ]
    return (
        str(card.index),
        _both(card.free),
        card.trouble or " and ".join(lacks) or "nothing",
        "\n".join(taken) or "nobody",
    )
