"""Which container runtimes are refused, and with which sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.errors import Unusable
from gaia_plugin.slots.cdi.runtime import Runtime, check, parse, read_configuration, require

V1 = "io.containerd.grpc.v1.cri"
V2 = "io.containerd.cri.v1.runtime"
OURS = "/var/run/cdi"


def containerd(plugin: str, **settings: Any) -> dict[str, Any]:
    return {"version": 2, "plugins": {plugin: settings}}


@pytest.mark.parametrize(
    ("text", "runtime"),
    [
        ("containerd://2.1.9", Runtime("containerd", (2, 1, 9))),
        ("containerd://1.7.27-k3s1", Runtime("containerd", (1, 7, 27))),
        ("containerd://v2.0", Runtime("containerd", (2, 0, 0))),
        ("cri-o://1.31.2", Runtime("cri-o", (1, 31, 2))),
        ("containerd", None),
        ("containerd://unknown", None),
        ("", None),
    ],
)
def test_versions(text: str, runtime: Runtime | None) -> None:
    assert parse(text) == runtime


@pytest.mark.parametrize(
    ("reported", "configuration"),
    [
        ("containerd://2.1.9", None),
        ("containerd://2.1.9", {}),
        ("containerd://2.1.9", containerd(V2, enable_cdi=True, cdi_spec_dirs=["/etc/cdi", "/run/cdi"])),
        ("containerd://1.7.27", containerd(V1, enable_cdi=True)),
        ("cri-o://1.31.2", None),
        ("cri-o://1.31.2", {"crio": {"runtime": {"cdi_spec_dirs": ["/var/run/cdi/"]}}}),
    ],
)
def test_with_cdi(reported: str, configuration: dict[str, Any] | None) -> None:
    assert check(reported, configuration, OURS) is None
    assert check(reported, configuration, "/run/cdi") is None


@pytest.mark.parametrize(
    ("reported", "configuration", "sentence"),
    [
        ("containerd://1.6.20", None, r"containerd 1\.6\.20 cannot .* containerd 1\.7\.13 or newer"),
        ("containerd://1.7.2", containerd(V1, enable_cdi=True), r"needs CDI 0\.6"),
        ("containerd://1.7.27", {}, rf"CDI is off in containerd 1\.7\.27.*`enable_cdi = true`.*{V1}"),
        ("containerd://1.7.27", containerd(V1, enable_cdi=False), "CDI is off"),
        ("containerd://2.1.9", containerd(V2, enable_cdi=False), rf"CDI is off in containerd 2\.1\.9.*{V2}"),
        ("containerd://2.1.9", containerd(V1, enable_cdi=False), "CDI is off"),
        (
            "containerd://2.1.9",
            containerd(V2, cdi_spec_dirs=["/etc/cdi"]),
            "looks for CDI specs in /etc/cdi, not in /var/run/cdi",
        ),
        ("cri-o://1.24.0", None, r"cri-o 1\.28\.0 or newer"),
        ("cri-o://1.31.2", {"crio": {"runtime": {"cdi_spec_dirs": []}}}, "in no directory, not in"),
    ],
)
def test_without_cdi(reported: str, configuration: dict[str, Any] | None, sentence: str) -> None:
    with pytest.raises(Unusable, match=sentence):
        check(reported, configuration, OURS)


@pytest.mark.parametrize(
    ("reported", "sentence"),
    [
        ("containerd://1.7.27", "CDI off unless it is switched on, and its settings cannot be read here"),
        ("docker://28.2.0", "docker://28.2.0 applies CDI specs is not known"),
        ("", "of this node applies CDI specs is not known"),
    ],
)
def test_where_it_cannot_be_told_a_sentence_for_the_log_says_so(reported: str, sentence: str) -> None:
    found = check(reported, None, OURS)
    assert found is not None
    assert sentence in found


def test_the_configuration_is_read_with_all_its_parts(tmp_path: Path) -> None:
    etc = tmp_path / "etc/containerd"
    (etc / "conf.d").mkdir(parents=True)
    (etc / "config.toml").write_text(
        f'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n[plugins."{V1}"]\nenable_cdi = false\n'
    )
    with pytest.raises(Unusable, match="CDI is off"):
        require("containerd://1.7.27", Path(OURS), root=tmp_path)
    (etc / "conf.d" / "gaia.toml").write_text(f'[plugins."{V1}"]\nenable_cdi = true\n')
    assert require("containerd://1.7.27", Path(OURS), root=tmp_path) is None
    (etc / "conf.d" / "later.toml").write_text("broken = [")
    assert require("containerd://1.7.27", Path(OURS), root=tmp_path) is None


def test_crios_directory_of_parts_counts(tmp_path: Path) -> None:
    parts = tmp_path / "etc/crio/crio.conf.d"
    parts.mkdir(parents=True)
    (tmp_path / "etc/crio/crio.conf").write_text("[crio.runtime]\n")
    (parts / "10-cdi.conf").write_text('[crio.runtime]\ncdi_spec_dirs = ["/etc/cdi"]\n')
    with pytest.raises(Unusable, match="looks for CDI specs in /etc/cdi, not"):
        require("cri-o://1.31.2", Path(OURS), root=tmp_path)


@pytest.mark.parametrize("text", [None, "broken = ["])
def test_settings_that_cannot_be_read_are_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config.toml"
    if text is not None:
        path.write_text(text)
    assert read_configuration(path) is None
