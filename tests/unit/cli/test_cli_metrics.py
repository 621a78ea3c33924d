"""`gaia agent --metrics`: served where it was asked for, and a sentence where it cannot be."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from gaia_plugin.cli import app
from gaia_plugin.errors import Unusable
from tests.unit.cli.conftest import Place, poll
from tests.unit.metrics.conftest import Told


@pytest.mark.parametrize("address", ["9478", "example.org:9478", ":70000", ""])
def test_an_address_that_is_none_is_said_before_anything_is_touched(address: str, place: Place) -> None:
    outcome = CliRunner().invoke(app, ["agent", "--sim", "--metrics", address], env=place.environ)
    assert isinstance(outcome.exception, Unusable)
    assert "is no address for metrics" in str(outcome.exception)


def agent(place: Place, address: str) -> subprocess.Popen[str]:
    words = ["agent", "--driver", str(place.driver), "--metrics", address]
    process = subprocess.Popen(
        [sys.executable, "-m", "gaia_plugin.cli", *words],
        env=place.environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    place.started.append(process)
    return process


def test_an_address_that_is_taken_ends_the_agent_with_a_sentence(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = agent(place, f"127.0.0.1:{port}")
        _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    assert f"gaia: Metrics cannot be served at 127.0.0.1:{port}: Address already in use." in said
    assert "Traceback" not in said


def test_metrics_are_served_where_they_were_asked_for(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = agent(place, f"127.0.0.1:{port}")

    def page() -> Told | None:
        assert process.poll() is None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                return Told.read(answer.read())
        except OSError:
            return None

    told = poll(page, "a page of metrics")
    assert told.all("gaia_card_healthy") == [1, 1]
    assert told.all("gaia_slot_state") == []
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in said
