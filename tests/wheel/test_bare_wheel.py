"""What the bare wheel brings into a user's image, and what it must not bring."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--python", sys.executable, "--out-dir", out, ROOT)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("bare") / "venv"
    run(UV, "venv", "--python", sys.executable, home)
    run(UV, "pip", "install", "--python", home / "bin/python", wheel)
    return home


def test_wheel_serves_every_python_and_holds_the_libraries(wheel: Path) -> None:
    assert "-py3-none-linux" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    for library in (
        "local/libcuda.so.1",
        "local/libnvidia-ml.so.1",
        "container/libcuda.so.1",
        "container/libnvidia-ml.so.1",
        "sim/libcuda.so.1",
        "sim/libnvidia-ml.so.1",
        "libgaia_pages.so",
    ):
        assert f"gaia_plugin/lib/{library}" in names
    assert any(name.endswith("etc/jupyter/jupyter_server_config.d/gaia.json") for name in names)


def test_bare_wheel_brings_no_grpc_and_no_kubernetes(bare: Path) -> None:
    listed = json.loads(run(UV, "pip", "list", "--python", bare / "bin/python", "--format", "json"))
    names = {package["name"].lower() for package in listed}
    assert "gaia-vgpu" in names
    assert not names & {
        "grpcio",
        "protobuf",
        "kubernetes",
        "kubernetes-asyncio",
        "nvidia-ml-py",
        "jupyterhub",
    }


def test_bare_wheel_has_the_panel_the_extension_and_the_client(bare: Path) -> None:
    run(bare / "bin/python", "-c", "import gaia_hub.panel, gaia_hub.server, gaia_plugin.api.client")
    listed = subprocess.run(
        [bare / "bin/jupyter", "server", "extension", "list"],
        capture_output=True,
        text=True,
        env=os.environ | {"JUPYTER_CONFIG_PATH": "", "HOME": str(bare)},
    )
    assert "gaia_hub.server" in listed.stdout + listed.stderr


def test_bare_wheel_says_which_extra_a_node_command_needs(bare: Path) -> None:
    assert "Usage" in run(bare / "bin/gaia", "--help")
    done = subprocess.run(
        [bare / "bin/gaia", "run", "--sim", "--memory", "1GiB", "--", "true"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "gaia-vgpu[node]" in done.stderr
    assert "Traceback" not in done.stderr
