"""`gaia cards`."""

from __future__ import annotations

from gaia_plugin.commands.common import (
    JsonOption,
    StateOption,
    agents,
    console,
    memory,
    print_json,
    print_table,
    title,
)


def cards(state: StateOption = None, json: JsonOption = False) -> None:
    """List the cards, and what is free on each.

    Of each card: its size, what is free for new slices, what is in use now, and its slots: on a
    node, their pods.
    """
    found = [(where, node, node.cards()) for where, node in agents(state)]
    if json:
        from gaia_plugin.commands.common import with_state

        print_json([card for where, _, listed in found for card in with_state(where, listed)])
        return
    for where, node, listed in found:
        slots = node.slots() if any(card.slots for card in listed) else ()
        called = {slot.slot: title(slot, slots) for slot in slots}
        print_table(
            f"Cards of the agent in {where}",
            ("card", "name", "memory", "free", "used now", "compute free", "slots", "uuid"),
            [
                (
                    str(card.index),
                    card.name if card.healthy else f"{card.name} (not healthy)",
                    memory(card.total.memory),
                    memory(card.free.memory),
                    memory(card.used),
                    f"{card.free.cores} %",
                    ", ".join(called.get(slot) or slot for slot in card.slots) or "none",
                    card.uuid,
                )
                for card in listed
            ],
        )
        for card in listed:
            if card.trouble:
                console().print(f"Card {card.index}: {card.trouble}", markup=False)
