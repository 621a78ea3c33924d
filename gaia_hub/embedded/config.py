"""JupyterHub's configuration for one machine; started by `gaia demo` as ``jupyterhub -f config.py``.

Bound to 127.0.0.1, one password for everybody, no database password and no Node. A setting that
stands here stands here for a reason; the rest is JupyterHub's default.
"""

import os
from pathlib import Path

from gaia_hub.embedded.settings import ENVIRONMENT, HubSettings

settings = HubSettings.read(Path(os.environ[ENVIRONMENT]))
directory = Path(settings.directory)

c = get_config()  # type: ignore[name-defined]  # noqa: F821  given by JupyterHub

c.JupyterHub.bind_url = f"http://127.0.0.1:{settings.port}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{settings.hub_port}"
c.JupyterHub.proxy_class = "gaia-embedded"
c.JupyterHub.spawner_class = "gaia-local"

c.JupyterHub.db_url = f"sqlite:///{directory / 'jupyterhub.sqlite'}"
c.JupyterHub.upgrade_db = True
c.JupyterHub.cookie_secret_file = str(directory / "cookie_secret")
c.JupyterHub.pid_file = str(directory / "jupyterhub.pid")
# Servers are processes below the hub: they end with it, and so do their slices.
c.JupyterHub.cleanup_servers = True

c.JupyterHub.authenticator_class = "shared-password"
c.SharedPasswordAuthenticator.user_password = settings.password
c.SharedPasswordAuthenticator.allow_all = True

c.GaiaLocalSpawner.agent_socket = settings.agent_socket
c.GaiaLocalSpawner.home_root = str(directory / "homes")
# JupyterHub 5.x counts a polite refusal as a failure and ends after five of them.
c.GaiaLocalSpawner.consecutive_failure_limit = 0
c.GaiaLocalSpawner.poll_interval = 5
c.GaiaLocalSpawner.http_timeout = 60
# Jupyter Server asks "shut down?" on SIGINT and waits 5 s for an answer; SIGTERM follows soon.
c.GaiaLocalSpawner.interrupt_timeout = 3
c.GaiaLocalSpawner.term_timeout = 5
