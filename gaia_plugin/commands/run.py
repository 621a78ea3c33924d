"""`gaia run`: any program in a slice of this machine's GPU, without a hub."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gaia_plugin.commands.common import DriverOption, DriverStateOption, SimOption, driver_of

if TYPE_CHECKING:
    from gaia_plugin.api.models import MadeSlot, NewSlot

NOT_FOUND = 127
NOT_EXECUTABLE = 126


def run(
    program: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="What to run, and its arguments.", show_default=False),
    ],
    memory: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Memory of the slice, with a unit, such as 4GiB.")
    ] = None,
    cores: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Compute in percent of one card's time. Default: the same part as memory.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT", help="The most that gaia resize may give it. Default: the whole card."
        ),
    ] = None,
    max_cores: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="The most that gaia resize may give it. Default: the whole card."
        ),
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", help="Split the slice evenly over N cards.")] = 1,
    compute: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            help="hard: never more than --cores. elastic: more while the card is idle.",
        ),
    ] = "hard",
    elastic: Annotated[bool, typer.Option("--elastic", help="The same as --compute elastic.")] = False,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the slot, for gaia slots and gaia resize. Default: run and the process id.",
        ),
    ] = None,
    driver: DriverOption = None,
    sim: SimOption = False,
    state: DriverStateOption = None,
) -> None:
    """Run any program in a slice of a GPU.

    All its processes together are held to the memory of the slice, and to its share of the card's time.

    The program takes this command's place: signals, terminal and exit code are its own. The slice
    goes back when it ends, however it ends. Its size can be changed meanwhile with gaia resize.

    Exit code 3: Gaia refused the slice, and says why. 1: something is missing on this machine.
    127 and 126: the program is not there, or is not executable. Everything else is the program's.

    Example: gaia run --memory 4GiB --cores 25 -- python train.py
    """
    import getpass

    from gaia_plugin.api.models import NewSlot

    if compute not in ("hard", "elastic"):
        raise typer.BadParameter("The mode is hard or elastic.", param_hint="--compute")
    compute = "elastic" if elastic else compute
    executable = _find(program[0])
    wish: dict[str, Any] = {
        "memory": memory,
        "cores": cores,
        "max_memory": max_memory,
        "max_cores": max_cores,
    }
    made = _make(
        NewSlot(
            owner=getpass.getuser(),
            name=f"run-{os.getpid()}" if name is None else name,
            count=count,
            compute="elastic" if compute == "elastic" else "hard",
            process=os.getpid(),
            **wish,
        ),
        driver_of(driver, sim),
        state,
    )
    _become(executable, program, environment(made, os.environ))


def environment(made: MadeSlot, outer: Any) -> dict[str, str]:
    """Return the program's environment: this one, and what brings it into its slot."""
    inner = {**outer, **made.environment}
    before = outer.get("LD_LIBRARY_PATH", "")
    if before:
        inner["LD_LIBRARY_PATH"] = f"{made.environment['LD_LIBRARY_PATH']}:{before}"
    return inner


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is not None:
        return found
    if os.path.exists(program):
        sys.stderr.write(f"gaia: {program} is not executable.\n")
        raise typer.Exit(NOT_EXECUTABLE)
    sys.stderr.write(f"gaia: there is no program {program}.\n")
    raise typer.Exit(NOT_FOUND)


def _make(wish: NewSlot, driver: Path | None, state: Path | None) -> MadeSlot:
    from gaia_plugin.api.start import ensure_agent
    from gaia_plugin.errors import Code, Refusal

    state = None if state is None else Path(os.path.abspath(state))
    for attempt in range(3):
        client = ensure_agent(state, driver)
        try:
            return client.make(wish)
        except Refusal as refusal:
            # an idle agent may end between the two steps; nothing was made then
            if refusal.code is not Code.UNAVAILABLE or attempt == 2 or hasattr(refusal, "problem"):
                raise
    raise AssertionError


def _become(executable: str, program: list[str], environ: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(executable, program, environ)  # noqa: S606
    except OSError as error:
        # the slot goes back with this process
        sys.stderr.write(f"gaia: {executable} cannot be run: {error.strerror}.\n")
        raise SystemExit(NOT_EXECUTABLE) from None
