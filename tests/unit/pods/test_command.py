"""`gaia agent --kubernetes`: what is missing is said before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gaia_plugin.agent import main
from gaia_plugin.agent.lock import LOCKED, StateLock, Taken, only_one
from gaia_plugin.agent.settings import AgentSettings
from gaia_plugin.cli import app
from gaia_plugin.errors import Unusable


def invoke(*arguments: str, **variables: str) -> object:
    outcome = CliRunner().invoke(app, ["agent", "--kubernetes", *arguments], env=variables)
    return outcome.exception if isinstance(outcome.exception, Unusable) else outcome.exit_code


def test_a_node_without_a_name_is_told_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAIA_NODE_NAME", raising=False)
    assert "GAIA_NODE_NAME is not set" in str(invoke("--state", str(tmp_path / "state")))
    assert not (tmp_path / "state").exists()


def test_it_does_not_end_when_idle(tmp_path: Path) -> None:
    assert invoke("--idle-exit", "3", GAIA_NODE_NAME="node1") == 2


@pytest.mark.parametrize(("words", "ceiling"), [(("--compute-ceiling", "50"), 50), ((), 70)])
def test_what_is_given_counts_more_than_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], ceiling: int
) -> None:
    told: list[AgentSettings] = []
    monkeypatch.setattr("gaia_plugin.agent.pods.main.serve_pods", lambda settings: told.append(settings) or 0)
    state, driver = str(tmp_path / "state"), str(tmp_path / "driver")
    given = (*words, "--state", state, "--driver", driver)
    assert invoke(*given, GAIA_NODE_NAME="node1", GAIA_COMPUTE_CEILING="70") == 0
    (settings,) = told
    assert settings.compute_ceiling == ceiling
    assert (str(settings.state), str(settings.driver)) == (state, driver)


def test_a_driver_and_the_simulated_one_exclude_each_other() -> None:
    assert invoke("--sim", "--driver", "/x", GAIA_NODE_NAME="node1") == 2


def test_a_second_one_says_who_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # both are for a process of its own
    monkeypatch.setattr(main, "configure_logs", lambda: None)
    monkeypatch.setattr(main.os, "umask", lambda _: 0)
    lock = StateLock.take(tmp_path / "state")
    assert invoke("--state", str(tmp_path / "state"), GAIA_NODE_NAME="node1") == LOCKED
    lock.release()


def test_a_second_one_of_a_node_with_another_state_ends(tmp_path: Path) -> None:
    """They would take the kubelet's registration from each other for ever."""
    with only_one(tmp_path):
        with pytest.raises(Taken, match="A node has one agent"), only_one(tmp_path):
            raise AssertionError("there are two")
        with only_one(tmp_path / "away"):
            pass
    with only_one(tmp_path):
        pass
