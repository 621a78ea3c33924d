"""`gaia resize`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gaia_plugin.commands.common import JsonOption, StateOption, agent_with, print_json


def resize(
    slot: Annotated[
        str | None,
        typer.Argument(
            metavar="SLOT",
            help="The slot; on a node also NAMESPACE/POD or NAMESPACE/POD:CONTAINER. Default: the one this "
            "program runs in.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Memory in total, with a unit, such as 8GiB.")
    ] = None,
    cores: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Compute in total, in percent of one card's time.")
    ] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Change a slot's size while its programs run.

    What is smaller than what is in use takes effect as memory is freed; nothing that runs is broken.
    """
    if memory is None and cores is None:
        raise typer.BadParameter("Say what to change: --memory, --cores or both.")
    if slot is not None:
        node, name = agent_with(slot, state)
        resized = node.resize(name, memory=memory, cores=cores)
    else:
        from gaia_plugin import paths
        from gaia_plugin.api.client import SlotClient

        own = paths.slot_socket()
        if own is None:
            raise typer.BadParameter("Name the slot: this program does not run in one.", param_hint="SLOT")
        resized = SlotClient(own).resize(memory=memory, cores=cores)
    if json:
        print_json(resized)
    else:
        sys.stdout.write(f"{resized.state}: {resized.message}\n")
