"""`gaia demo`: the hub's, found by name at the time it is called."""

from __future__ import annotations

import importlib
from typing import Any, Final

import typer

from gaia_plugin.errors import Unusable

_WHERE: Final = "gaia_hub.embedded.demo"


def demo(context: typer.Context) -> None:
    """Start JupyterHub with sliced GPUs here.

    It prints the address, a user and a password. Control-C ends it.
    Options after the word demo go to the hub; gaia demo --help lists them.
    """
    try:
        module: Any = importlib.import_module(_WHERE)
    except ImportError as error:
        raise Unusable(
            f"The demo needs JupyterHub and what belongs to it ({error}). Install them with "
            "pip install 'gaia-vgpu[demo]'."
        ) from error
    if "--help" not in context.args:
        from gaia_plugin.api import whose

        whose.refuse_on_node()
    raise typer.Exit(int(module.main(context.args) or 0))
