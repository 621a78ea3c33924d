"""The Jupyter Server extension between the browser and the slot's socket.

The panel in a notebook asks here instead of asking the kernel, because a kernel answers nothing while
a cell runs. The wheel switches the extension on; where a server has no slice it registers three routes
and does nothing else: no thread, no connection, no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "gaia_hub.server"}]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    # here, so that a kernel that imports the panel does not load Jupyter Server
    from gaia_hub.server.handlers import routes

    app.web_app.add_handlers(".*$", routes(app.base_url))  # type: ignore[no-untyped-call]
