"""Where state lies and where a driver is found, also below another root."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin import paths


def locked(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "lock").touch()
    return directory


def put_driver(root: Path, directory: str) -> Path:
    place = root / directory.lstrip("/")
    place.mkdir(parents=True)
    for name in paths.DRIVER_LIBRARIES:
        (place / name).touch()
    return place


@pytest.fixture(autouse=True)
def no_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(paths.subprocess, "run", missing)


def test_a_state_root_may_be_a_state_directory_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "NODE_STATE", tmp_path / "node")
    root, below = tmp_path / "root", tmp_path / "root/sim"
    assert paths.state_directories(root) == ()
    locked(below)
    assert paths.state_directories(root) == (below,)
    locked(root)
    assert paths.state_directories(root) == (root, below)
    locked(tmp_path / "node")
    assert paths.state_directories(root) == (root, tmp_path / "node", below)
    assert paths.state_directories(tmp_path / "node") == (tmp_path / "node",)


@pytest.mark.parametrize(
    "directory",
    [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu/nvidia/current",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/local/nvidia/lib64",
        "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "/run/nvidia/driver/usr/lib64",
    ],
)
def test_a_driver_is_found_below_the_nodes_root(tmp_path: Path, directory: str) -> None:
    place = put_driver(tmp_path, directory)
    assert paths.find_driver(tmp_path) == place
    (place / "libnvidia-ml.so.1").unlink()
    assert paths.find_driver(tmp_path) is None


def test_a_link_that_leads_out_of_the_nodes_root_is_passed_over(tmp_path: Path) -> None:
    shown, real = (
        put_driver(tmp_path, "/usr/lib/x86_64-linux-gnu"),
        "/usr/lib/x86_64-linux-gnu/nvidia/current",
    )
    for name in paths.DRIVER_LIBRARIES:
        (shown / name).unlink()
        (shown / name).symlink_to(f"/etc/alternatives/not-here-{name}")
    assert paths.find_driver(tmp_path) is None
    assert paths.find_driver(tmp_path) != put_driver(tmp_path, real)
    assert paths.find_driver(tmp_path) == tmp_path / real.lstrip("/")


def test_the_nodes_own_loader_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_driver(tmp_path, "/usr/lib64")
    unusual = put_driver(tmp_path, "/opt/nvidia/lib")
    asked: list[list[str]] = []

    def ldconfig(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        told = (
            "2 libs found in cache\n"
            "\tlibcuda.so.1 (libc6) => /opt/nvidia/lib32/libcuda.so.1\n"
            "\tlibcuda.so.1 (libc6,x86-64) => /opt/nvidia/lib/libcuda.so.1\n"
        )
        return subprocess.CompletedProcess(command, 0, told, "")

    monkeypatch.setattr(paths.subprocess, "run", ldconfig)
    assert paths.find_driver(tmp_path) == unusual
    assert asked[0][1:] == ["-p", "-C", str(tmp_path / "etc/ld.so.cache")]
