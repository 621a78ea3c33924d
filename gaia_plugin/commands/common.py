"""What the commands share: exit codes, options, finding agents, printing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gaia_plugin.errors import Unusable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gaia_plugin.api.client import NodeClient
    from gaia_plugin.api.models import Slot

BROKEN: Final = 1
"""Exit code when the machine lacks something, or nothing answers. 2 is typer's, for a wrong command line."""
REFUSED: Final = 3
"""Exit code when Gaia refuses: no room, over a maximum, not an amount."""

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR", help="State directory of the agent. Default: every agent running."
    ),
]
DriverStateOption = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", help="State directory of the agent. Default: the driver's own."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
DriverOption = Annotated[
    Path | None,
    typer.Option(
        "--driver",
        metavar="DIR",
        help="The NVIDIA driver to use: a directory with libcuda.so.1 and libnvidia-ml.so.1. "
        "Default: the system's.",
    ),
]
SimOption = Annotated[bool, typer.Option("--sim", help="Use the simulated GPU instead of a real one.")]


def driver_of(driver: Path | None, sim: bool) -> Path | None:
    """Return the driver directory the two options name; the simulated one is made if it is missing."""
    from gaia_plugin import paths

    if sim and driver is not None:
        raise typer.BadParameter("Name a driver or the simulated one, not both.", param_hint="--sim")
    if not sim:
        return None if driver is None else paths.check_driver(driver)
    from gaia_plugin.sim import default_sim

    return default_sim()


def agents(state: Path | None) -> list[tuple[Path, NodeClient]]:
    """Return the running agents: that of `state`, or all under the state root.

    Raises:
        Unusable: none answers.
    """
    from gaia_plugin.api import start

    if state is not None:
        state = Path(os.path.abspath(state))
        if not start.answers(state):
            raise Unusable(f"No agent answers in {state}. `gaia agent --state {state}` starts one.")
        return [(state, start.client_of(state))]
    found = start.running()
    if not found:
        raise Unusable(_none_runs())
    return [(each, start.client_of(each)) for each in found]


def _none_runs() -> str:
    from gaia_plugin import paths
    from gaia_plugin.api import whose

    if (state := whose.node_state()) is not None:
        return (
            f"The agent of this node, in {state}, does not answer. Its pod's log says why: "
            "kubectl -n gaia-system logs daemonset/gaia-agent."
        )
    return (
        f"No agent is running under {paths.state_root()}. `gaia run` and `gaia demo` start one; "
        "`gaia agent` runs one in the foreground. On a node of a cluster look as root."
    )


def agent_with(slot: str, state: Path | None) -> tuple[NodeClient, str]:
    """Return the client of the one agent that has a slot, and the slot's name.

    Args:
        slot: its name; on a node also namespace/pod, or namespace/pod:container.
        state: the agent's state directory; None: every agent's.

    Raises:
        Refusal: ``no_such_slot``.
        Unusable: no agent answers, or several slots are called so.
    """
    from gaia_plugin.errors import Code, Refusal

    listed = [(where, node, node.slots()) for where, node in agents(state)]
    having = [(where, node, each) for where, node, slots in listed for each in slots if slot in names(each)]
    # a slot's own name is nobody else's
    exact = [one for one in having if one[2].slot == slot] or having
    if not exact:
        known = sorted(title(each, slots) or each.slot for _, _, slots in listed for each in slots)
        raise Refusal(Code.NO_SUCH_SLOT, f"There is no slot {slot!r}. {_those(known)}")
    if len({where for where, _, _ in exact}) > 1:
        places = " and ".join(str(where) for where, _, _ in exact)
        raise Unusable(f"Several agents have a slot {slot!r}; name one with --state: {places}.")
    if len(exact) > 1:
        several = " or ".join(f"{each.label}:{each.name}" for _, _, each in exact)
        raise Unusable(f"The pod {slot} has a slot in several containers: name {several}.")
    return exact[0][1], exact[0][2].slot


_MOST_NAMES: Final = 8


def _those(known: Sequence[str]) -> str:
    more = len(known) - _MOST_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return f"`gaia slots` lists {', '.join(known[:_MOST_NAMES]) or 'none'}{rest}."


def names(slot: Slot) -> tuple[str, ...]:
    """Return what a slot may be called: its name, its pod, its pod and container."""
    if not slot.label:
        return (slot.slot,)
    pods = {slot.label, slot.label.removeprefix("default/")}
    return slot.slot, *sorted(pods), *(f"{pod}{mark}{slot.name}" for pod in sorted(pods) for mark in ":/")


def title(slot: Slot, among: Iterable[Slot]) -> str:
    """Return namespace/pod of a slot, and its container where the pod has several slots; else ""."""
    several = sum(each.label == slot.label for each in among) > 1
    return f"{slot.label}:{slot.name}" if slot.label and several else slot.label


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def with_state(state: Path, items: Iterable[Any]) -> list[dict[str, Any]]:
    """Return API values as plain dictionaries that also say which agent they are from."""
    import msgspec

    return [{**msgspec.to_builtins(item), "state_directory": str(state)} for item in items]


def print_table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of text; the first column is never cut."""
    console().print(table_of(heading, columns, rows))


def console() -> Console:
    """Return where tables go: as wide as the terminal, or 200 columns where there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200, highlight=False, emoji=False)


def table_of(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of text; the first column is never cut."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=escape(heading), title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, header_style="bold")
    for row in rows:
        table.add_row(*[escape(cell) for cell in row])
    return table


def memory(amount: int) -> str:
    """Write bytes for people."""
    from gaia_plugin.units import format_memory

    return format_memory(amount)
