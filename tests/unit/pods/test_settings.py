"""An agent's settings: from the environment, strict, with sentences that name the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaia_plugin.agent.settings import AgentSettings, read_settings
from gaia_plugin.errors import Unusable


def test_only_the_node_has_to_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_NODE_NAME", "node-1.example.org")
    settings = read_settings()
    assert settings.node_name == "node-1.example.org"
    assert (settings.memory, settings.cores) == ("gaia.io/vgpu-memory", "gaia.io/vgpu-cores")
    assert settings.kind == "gaia.io/slot"
    assert settings.kubelet_dir == Path("/var/lib/kubelet")


def test_what_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAIA_NODE_NAME", "node-1")
    monkeypatch.setenv("GAIA_DOMAIN", "gpu.example.org")
    settings = read_settings(node_name="node-2", domain=None, cdi_dir=Path("/run/cdi"))
    assert (settings.node_name, settings.memory) == ("node-2", "gpu.example.org/vgpu-memory")
    assert settings.cdi_dir == Path("/run/cdi")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NODE_NAME", ""),
        ("NODE_NAME", "Node"),
        ("NODE_NAME", "a/b"),
        ("NODE_NAME", "n\n"),
        ("DOMAIN", "gaia"),
        ("DOMAIN", "gaia.io/x"),
        ("KUBELET_DIR", "kubelet"),
        ("STATE", "."),
        ("COMPUTE_CEILING", "0"),
        ("COMPUTE_CEILING", "101"),
        ("METRICS_ADDRESS", ""),
        ("METRICS_ADDRESS", "9478"),
        ("METRICS_ADDRESS", "metrics:9478"),
    ],
)
def test_nonsense_is_a_sentence(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("GAIA_NODE_NAME", "node-1")
    monkeypatch.setenv(f"GAIA_{variable}", value)
    with pytest.raises(Unusable, match=f"GAIA_{variable}"):
        read_settings()


def test_a_missing_node_name_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAIA_NODE_NAME", raising=False)
    with pytest.raises(Unusable, match="GAIA_NODE_NAME is not set"):
        read_settings()


@pytest.mark.parametrize(
    ("value", "address"),
    [(None, ("", 9478)), ("off", None), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_metrics_are_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, value: str | None, address: tuple[str, int] | None
) -> None:
    monkeypatch.setenv("GAIA_NODE_NAME", "node-1")
    if value is not None:
        monkeypatch.setenv("GAIA_METRICS_ADDRESS", value)
    assert read_settings().metrics_address == address
    assert read_settings(metrics_address="off").metrics_address is None


def test_every_setting_is_explained() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/kubernetes-node.md").read_text()
    missing = [name for name in AgentSettings.model_fields if f"GAIA_{name.upper()}`" not in text]
    assert missing == []
