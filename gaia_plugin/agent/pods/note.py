"""What a node's agent notes of itself in its state directory, for `gaia doctor` and who starts another."""

from __future__ import annotations

import time
from pathlib import Path

from gaia_plugin.agent.main import tell_who
from gaia_plugin.agent.settings import AgentSettings


class Note:
    """The note of one life of the agent.

    Args:
        settings: what it was told.
        driver: the driver's directory as it sees it; None: not found yet.
    """

    def __init__(self, settings: AgentSettings, driver: Path | None = None) -> None:
        self._settings = settings
        self._driver = driver
        self._registered: dict[str, float] = {}
        self._write()

    def found(self, driver: Path) -> None:
        """Note the driver."""
        self._driver = driver
        self._write()

    def registered(self, resource: str) -> None:
        """Note that a resource was registered with the kubelet just now."""
        self._registered[resource] = time.time()
        self._write()

    def _write(self) -> None:
        told = self._settings
        tell_who(
            told.state,
            self._driver,
            kubernetes=True,
            node=told.node_name,
            domain=told.domain,
            kubelet_dir=str(told.kubelet_dir),
            cdi_dir=str(told.cdi_dir),
            driver_root=str(told.driver_root),
            kubeconfig=None if told.kubeconfig is None else str(told.kubeconfig),
            registered=self._registered,
        )
