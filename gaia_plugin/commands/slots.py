"""`gaia slots`."""

from __future__ import annotations

import sys

from gaia_plugin.commands.common import JsonOption, StateOption, agents, memory, print_json, print_table


def slots(state: StateOption = None, json: JsonOption = False) -> None:
    """List the slots, and what each uses and may use.

    Of each slot: its state, the memory in use, granted, and held on the card (more than granted while a
    shrink waits for memory to be freed), how far it could grow now, and its compute.
    """
    found = [(where, node.slots()) for where, node in agents(state)]
    if json:
        from gaia_plugin.commands.common import with_state

        print_json([slot for where, listed in found for slot in with_state(where, listed)])
        return
    if not any(listed for _, listed in found):
        sys.stdout.write("There are no slots.\n")
        return
    for where, listed in found:
        print_table(
            f"Slots of the agent in {where}",
            ("slot", "state", "used", "granted", "held", "could grow to", "compute", "cards"),
            [
                (
                    slot.slot,
                    slot.state,
                    memory(slot.used),
                    memory(slot.granted.memory),
                    memory(slot.held.memory),
                    memory(slot.could_reach.memory),
                    f"{slot.granted.cores} %",
                    ", ".join(str(card.index) for card in slot.cards),
                )
                for slot in listed
            ],
        )
