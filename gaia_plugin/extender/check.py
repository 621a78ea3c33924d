"""Asks the extender on this machine whether it is ready: what a probe runs, as nothing else can reach it."""

from __future__ import annotations

import http.client
from typing import Final

from gaia_plugin.errors import Unusable

HOST: Final = "127.0.0.1"
_SECONDS: Final = 8.0


def check_here(port: int) -> None:
    """Return if the extender at this port has read the cluster.

    Raises:
        Unusable: it has not, or does not answer.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=_SECONDS)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        said = answer.read().decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise Unusable(f"No extender answers on {HOST}:{port}: {error}.") from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise Unusable(f"The extender on {HOST}:{port} is not ready: {said}.")
