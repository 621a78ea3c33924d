from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gaia_hub.server import place


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GAIA_SLOT_SOCKET", raising=False)
    monkeypatch.setattr(place, "SLOT_DIRECTORY", tmp_path)
    return tmp_path


def test_no_slot_directory_means_no_slot(directory: Path) -> None:
    assert place.slot_socket() is None


@pytest.mark.parametrize("name", ["agent.sock", "limits"])
def test_a_container_with_a_slot_directory_has_a_slot(directory: Path, name: str) -> None:
    (directory / name).touch()
    assert place.slot_socket() == directory / "agent.sock"


def test_the_environment_names_the_socket_where_there_is_no_container(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "agent.sock").touch()
    monkeypatch.setenv("GAIA_SLOT_SOCKET", "/elsewhere/agent.sock")
    assert place.slot_socket() == Path("/elsewhere/agent.sock")


def test_the_panel_does_not_load_the_jupyter_server() -> None:
    program = "import sys, gaia_hub.panel; assert 'jupyter_server' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", program], check=True)
