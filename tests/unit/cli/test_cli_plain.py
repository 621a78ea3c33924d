"""The command line on a machine where nothing runs, and where only the bare wheel is installed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin import paths
from gaia_plugin.errors import Unusable

COMMANDS = ("cards", "slots", "resize", "explain", "nodes", "run", "doctor", "paths", "agent")

BARE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"starlette", "uvicorn", "structlog", "pynvml", "kubernetes", "grpc",
                                  "jupyterhub", "pydantic_settings"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from gaia_plugin.cli import main
main()
"""


def gaia(tmp_path: Path, *words: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    how = ["-m", "gaia_plugin.cli"] if code is None else ["-c", code]
    environ = {**os.environ, "GAIA_STATE": str(tmp_path / "root"), "COLUMNS": "100"}
    environ.pop("GAIA_SLOT_SOCKET", None)
    return subprocess.run(
        [sys.executable, *how, *words], env=environ, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "words", [("--help",), *[(command, "--help") for command in COMMANDS], ("--version",)]
)
def test_help_needs_nothing_but_the_bare_wheel(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = gaia(tmp_path, *words, code=BARE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "..." not in done.stdout.replace("{PROGRAM}...", "").replace("[ARGS]...", "")


def test_node_commands_name_the_extra_they_need(tmp_path: Path) -> None:
    done = gaia(tmp_path, "agent", "--state", str(tmp_path / "s"), code=BARE)
    assert done.returncode == 1
    assert "gaia-vgpu[node]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_demo_names_the_extra_it_needs(tmp_path: Path) -> None:
    code = BARE.replace('"starlette",', '"starlette", "gaia_hub",')
    done = gaia(tmp_path, "demo", code=code)
    assert done.returncode == 1
    assert "gaia-vgpu[demo]" in done.stderr


@pytest.mark.parametrize("words", [("cards",), ("slots",), ("resize", "x", "--memory", "1GiB")])
def test_where_no_agent_runs_a_sentence_says_what_starts_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = gaia(tmp_path, *words)
    assert done.returncode == 1
    assert "No agent is running" in done.stderr
    assert "gaia run" in done.stderr


def test_a_resize_of_nothing_is_a_usage_error(tmp_path: Path) -> None:
    assert gaia(tmp_path, "resize", "x").returncode == 2
    assert gaia(tmp_path, "resize", "--memory", "1GiB").returncode == 2


def test_a_slot_socket_that_is_gone_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {**os.environ, "GAIA_SLOT_SOCKET": str(tmp_path / "agent.sock")}
    done = subprocess.run(
        [sys.executable, "-m", "gaia_plugin.cli", "resize", "--memory", "1GiB"],
        env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "does not answer" in done.stderr


def test_doctor_counts_what_is_broken(tmp_path: Path) -> None:
    found = json.loads(gaia(tmp_path, "doctor", "--driver", str(tmp_path), "--json").stdout)
    verdicts = {finding["what"]: finding["verdict"] for finding in found}
    assert verdicts["driver"] == "broken"
    assert verdicts["agent"] == "note"
    assert {"compiler", "/dev/shm", "libraries", "state", "port 8000"} <= set(verdicts)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "eight", "8\n9"])
def test_doctor_refuses_what_is_no_port(tmp_path: Path, port: str) -> None:
    done = gaia(tmp_path, "doctor", f"--port={port}")
    assert done.returncode == 2
    assert "--port" in done.stderr


def test_doctor_names_the_way_to_another_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = json.loads(gaia(tmp_path, "doctor", "--port", str(port), "--json").stdout)
    said = {finding["what"]: (finding["verdict"], finding["sentence"]) for finding in found}
    assert said[f"port {port}"] == (
        "note",
        "is in use; a hub may be running already. gaia demo --port takes another one.",
    )


def test_driver_and_simulated_driver_exclude_each_other(tmp_path: Path) -> None:
    done = gaia(tmp_path, "run", "--sim", "--driver", "/x", "--memory", "1GiB", "--", "true")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"GAIA_STATE": "/a/b"}, "/a/b"),
        ({"GAIA_STATE": "", "XDG_STATE_HOME": "/x"}, "/x/gaia"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/gaia"),
        ({"HOME": "/h"}, "/h/.local/state/gaia"),
    ],
)
def test_the_state_root(environ: dict[str, str], root: str) -> None:
    assert str(paths.state_root(environ)) == root


def test_each_driver_has_a_state_directory_of_its_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (tmp_path / "link").symlink_to(tmp_path / "driver")
    one = paths.state_directory(tmp_path / "driver", root)
    assert one == paths.state_directory(tmp_path / "link", root)
    assert one != paths.state_directory(tmp_path / "other", root)
    assert paths.state_directory(None, root).name == "system"
    assert paths.state_directory(root / "sim-driver", root).name == "sim"


def test_a_driver_directory_has_both_libraries(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    with pytest.raises(Unusable, match=r"lacks libnvidia-ml\.so\.1"):
        paths.check_driver(tmp_path)


@pytest.mark.parametrize(
    ("before", "expected"), [({}, "/s/lib"), ({"LD_LIBRARY_PATH": "/opt/x:/y"}, "/s/lib:/opt/x:/y")]
)
def test_a_library_path_of_ones_own_stays_behind_the_slots(before: dict[str, str], expected: str) -> None:
    from types import SimpleNamespace

    from gaia_plugin.commands.run import environment

    made: Any = SimpleNamespace(environment={"LD_LIBRARY_PATH": "/s/lib"})
    assert environment(made, {"A": "b", **before}) == {"A": "b", "LD_LIBRARY_PATH": expected}


def test_an_agent_started_from_within_a_slot_sees_the_driver_not_the_slot(tmp_path: Path) -> None:
    from gaia_plugin.api.start import agent_environment

    lib = tmp_path / "slots" / "alice" / "lib"
    lib.mkdir(parents=True)
    (lib.parent / "limits").touch()
    cleaned = agent_environment(
        {"LD_LIBRARY_PATH": f"{lib}:/opt/x", "GAIA_SLOT_SOCKET": "/s", "CUDA_VISIBLE_DEVICES": "1", "A": "b"}
    )
    assert cleaned == {"LD_LIBRARY_PATH": "/opt/x", "A": "b"}
