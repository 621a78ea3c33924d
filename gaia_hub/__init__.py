"""JupyterHub and the notebook: spawner, spawn page, panel, server extension."""
