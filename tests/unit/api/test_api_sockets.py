"""Sockets below directories whose names are too long for an address."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from gaia_plugin.api import sockets
from gaia_plugin.api.client import SlotClient


def test_a_socket_far_down_is_served_and_reached(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-long-name-of-a-directory"] * 8)
    deep.mkdir(parents=True)
    path = deep / "agent.sock"
    with sockets.bind(path) as listener:
        listener.listen()
        with sockets.connect(path, 60):
            listener.setblocking(True)
            listener.accept()[0].close()


def test_a_socket_is_for_its_owner_only_and_replaces_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    sockets.bind(path).close()
    with sockets.bind(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_serving_over_a_long_path(api_far_down: Any) -> None:
    assert SlotClient(api_far_down.slot_socket).slot().slot == "alice"
