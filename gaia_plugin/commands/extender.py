"""`gaia extender`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def extender(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="How to reach the API server. Default: the pod's service account."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any. Default: 8899."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only tell whether the one that runs here is ready."),
    ] = False,
) -> None:
    """Answer a kube-scheduler that places pods with slices of GPUs.

    It runs beside that kube-scheduler in one pod (deploy/scheduler.yaml) and listens on 127.0.0.1 only.
    Every setting is an environment variable too: GAIA_DOMAIN, GAIA_KUBECONFIG, GAIA_EXTENDER_PORT,
    GAIA_STALE_SECONDS, GAIA_UNBOUND_SECONDS, GAIA_PLACEMENT. An option counts more than its variable.
    """
    from gaia_plugin.extender.settings import read_settings

    where = None if kubeconfig is None else Path(os.path.abspath(kubeconfig))
    settings = read_settings(kubeconfig=where, extender_port=port)
    if check:
        from gaia_plugin.extender.check import check_here

        check_here(settings.extender_port)
        return

    from gaia_plugin.extender.main import serve_extender

    raise typer.Exit(serve_extender(settings))
