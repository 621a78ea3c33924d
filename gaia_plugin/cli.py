"""The `gaia` command.

Exit codes: 0 done, 1 something is missing or broken on this machine, 2 the command line is wrong,
3 Gaia refused (no room, over a maximum, not an amount). Errors are one sentence on stderr.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gaia_plugin import __version__
from gaia_plugin.commands import (
    agent,
    cards,
    demo,
    doctor,
    explain,
    extender,
    nodes,
    paths,
    resize,
    run,
    slots,
)
from gaia_plugin.commands.common import BROKEN, REFUSED
from gaia_plugin.errors import Refusal, Unusable
from gaia_plugin.extras import CLUSTER_PARTS, NODE_PARTS

app = typer.Typer(
    name="gaia",
    help="Slices of a GPU: run programs in them, look at them, and change their size while they run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gaia {__version__}\n")
        raise typer.Exit


@app.callback()
def _gaia(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command()(cards.cards)
app.command()(slots.slots)
app.command()(resize.resize)
app.command()(explain.explain)
app.command()(nodes.nodes)
app.command(context_settings={"allow_interspersed_args": False})(run.run)
app.command()(doctor.doctor)
app.command()(paths.paths)
app.command()(agent.agent)
app.command()(extender.extender)
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)(demo.demo)


def main() -> None:
    """Run the command line and turn what goes wrong into one sentence and an exit code."""
    try:
        app()
    except Refusal as refusal:
        _say(refusal.sentence)
        sys.exit(REFUSED)
    except Unusable as unusable:
        _say(str(unusable))
        sys.exit(BROKEN)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in NODE_PARTS | CLUSTER_PARTS:
            raise
        _say(
            f"This command needs the node part of Gaia ({error.name} is missing). Install it with "
            "pip install 'gaia-vgpu[node]'."
        )
        sys.exit(BROKEN)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(BROKEN)


def _say(sentence: str) -> None:
    sys.stderr.write(f"gaia: {sentence}\n")


if __name__ == "__main__":
    main()
