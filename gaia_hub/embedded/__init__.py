"""JupyterHub on one machine by one command: in-process proxy, configuration, `gaia demo`."""
