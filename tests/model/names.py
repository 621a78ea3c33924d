"""Which function does a step: those that the code has, and those that it is to get by these names.

A step of agent or extender begins with one of these names; a test compares both lists with the code.
"""

from __future__ import annotations

CODE = {
    "Ledger.reserve": "gaia_plugin.ledger.ledger:Ledger.reserve",
    "Ledger.take_back": "gaia_plugin.ledger.ledger:Ledger.take_back",
    "Ledger.hold": "gaia_plugin.ledger.ledger:Ledger.hold",
    "Ledger.commit": "gaia_plugin.ledger.ledger:Ledger.commit",
    "Ledger.undo": "gaia_plugin.ledger.ledger:Ledger.undo",
    "Ledger.resize": "gaia_plugin.ledger.ledger:Ledger.resize",
    "Ledger.settle": "gaia_plugin.ledger.ledger:Ledger.settle",
    "Ledger.release": "gaia_plugin.ledger.ledger:Ledger.release",
    "Ledger.remove": "gaia_plugin.ledger.ledger:Ledger.remove",
    "Core.claim": "gaia_plugin.agent.core:Core.claim",
    "Core.raise_held": "gaia_plugin.agent.core:Core.raise_held",
    "Core._store": "gaia_plugin.agent.core:Core._store",
    "Reader.use": "gaia_plugin.agent.readings:Reader.use",
    "PodCore.recover": "gaia_plugin.agent.pods.core:PodCore.recover",
    "Admission.prestart": "gaia_plugin.agent.pods.admit:Admission.prestart",
    "Server.evict": "gaia_plugin.agent.pods.ports:Server.evict",
    "get_gpunode": "gaia_plugin.agent.pods.gpunode:get_gpunode",
    "put_status": "gaia_plugin.agent.pods.gpunode:put_status",
    "stop_overbooker": "gaia_plugin.agent.pods.watchdog:stop_overbooker",
    "read_node_and_pod": "gaia_plugin.extender.binding:read_node_and_pod",
    "reserve": "gaia_plugin.extender.binding:reserve",
    "bind": "gaia_plugin.extender.binding:bind",
    "drop_reservation": "gaia_plugin.extender.dropping:drop_reservation",
    "touch_pod": "gaia_plugin.extender.dropping:touch_pod",
}
"""Where the code has it."""

TO_COME: dict[str, str] = {}
"""What the model does and the code does not yet: build it under its name here, and move the entry up."""


def function_of(label: str) -> str:
    """Return the function that a step's label begins with."""
    end = next((at for at, letter in enumerate(label) if letter in "( ,:;"), len(label))
    return label[:end]
