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
}
"""Where the code has it."""

TO_COME = {
    "read_node_and_pod": "extender: begin a bind; read the GPUNode and the pod",
    "reserve": "extender: PUT spec.reservations with a new `at` and the resourceVersion of that read",
    "bind": "extender: send the Binding with UID and resourceVersion of the pod as read before",
    "drop_reservation": "extender: read the GPUNode, ask for the pod live, PUT without its reservation",
    "touch_pod": "extender: write something new into an unbound pod, so that a Binding gets 409",
}
"""Where the code does not have it yet: build it under this name, and move the entry up."""


def function_of(label: str) -> str:
    """Return the function that a step's label begins with."""
    end = next((at for at, letter in enumerate(label) if letter in "( ,:;"), len(label))
    return label[:end]
