"""`gaia agent`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gaia_plugin.commands.common import DriverOption, DriverStateOption, SimOption, driver_of


def agent(
    state: DriverStateOption = None,
    driver: DriverOption = None,
    sim: SimOption = False,
    idle_exit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End after so long without slots and clients. Default: never."),
    ] = None,
    compute_ceiling: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            metavar="PERCENT",
            help="How much of a card's time its elastic slots may have in all. Default: 100.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve metrics for Prometheus at HOST:PORT, for example 127.0.0.1:9478; whoever reaches the "
            "address can read them. Default: off, with --kubernetes :9478.",
        ),
    ] = None,
    kubernetes: Annotated[
        bool,
        typer.Option(
            "--kubernetes",
            help="Be the agent of a node of a cluster: share its cards among pods. GAIA_NODE_NAME names the "
            "node; docs/how-to/kubernetes-node.md lists the other variables. An option counts more than its "
            "variable. State lies in GAIA_STATE itself, without it in /var/lib/gaia.",
        ),
    ] = False,
) -> None:
    """Run the agent in the foreground.

    It keeps the ledger, the limits and the sockets of this machine, or of a node with --kubernetes.
    gaia run and gaia demo start one by themselves. One agent runs per state directory; a second
    one says who has it and ends with exit code 17.
    """
    from gaia_plugin import paths

    if kubernetes:
        raise typer.Exit(_serve_pods(state, driver, sim, idle_exit, compute_ceiling, metrics))
    from gaia_plugin.agent.main import serve
    from gaia_plugin.api import whose
    from gaia_plugin.metrics.address import address_of

    whose.refuse_on_node()
    chosen = driver_of(driver, sim)
    directory = paths.state_directory(chosen) if state is None else Path(os.path.abspath(state))
    raise typer.Exit(
        serve(
            directory,
            chosen,
            idle_exit=idle_exit,
            compute_ceiling=compute_ceiling or 100,
            metrics=None if metrics is None else address_of(metrics),
        )
    )


def _serve_pods(
    state: Path | None,
    driver: Path | None,
    sim: bool,
    idle_exit: float | None,
    ceiling: int | None,
    metrics: str | None,
) -> int:
    from gaia_plugin.agent.settings import read_settings

    if idle_exit is not None:
        raise typer.BadParameter("A node's agent does not end by itself.", param_hint="--idle-exit")
    where = None if state is None else Path(os.path.abspath(state))
    # a driver that is not there yet is waited for, so it is looked for later
    chosen = driver_of(driver, sim) if sim else driver and Path(os.path.abspath(driver))
    settings = read_settings(state=where, driver=chosen, compute_ceiling=ceiling, metrics_address=metrics)

    from gaia_plugin.agent.pods.main import serve_pods

    return serve_pods(settings)
