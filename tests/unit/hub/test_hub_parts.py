"""The small pure parts of the hub side: environment, homes, routes, headers, processes."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from traitlets import TraitError

from gaia_hub import homes
from gaia_hub.embedded import headers, processes
from gaia_hub.embedded.forward import origin_form
from gaia_hub.embedded.routes import RouteTable
from gaia_hub.embedded.settings import HubSettings
from gaia_hub.local import GaiaLocalSpawner, server_environment

STATE = Path("/state/sim")
SLOT = {
    "LD_LIBRARY_PATH": "/state/sim/slots/ann/lib",
    "CUDA_VISIBLE_DEVICES": "GPU-1",
    "GAIA_SLOT_SOCKET": "/state/sim/slots/ann/agent.sock",
}


def test_a_server_gets_its_slot_before_the_libraries_of_the_hub() -> None:
    result = server_environment({"LD_LIBRARY_PATH": "/opt/lib", "CUDA_VISIBLE_DEVICES": "7"}, SLOT, STATE)
    assert result["LD_LIBRARY_PATH"] == "/state/sim/slots/ann/lib:/opt/lib"
    assert result["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_a_server_without_a_slice_sees_no_card_and_no_slot() -> None:
    inherited = {**SLOT, "LD_LIBRARY_PATH": "/state/sim/slots/ann/lib:/opt/lib:", "KEPT": "1"}
    assert server_environment(inherited, None, STATE) == {
        "KEPT": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "LD_LIBRARY_PATH": "/opt/lib",
    }
    assert "LD_LIBRARY_PATH" not in server_environment(SLOT, None, STATE)


def test_pytorch_segments_are_a_switch() -> None:
    assert "PYTORCH_CUDA_ALLOC_CONF" not in server_environment({}, SLOT, STATE)
    on = server_environment({}, SLOT, STATE, expandable=True)
    assert on["PYTORCH_CUDA_ALLOC_CONF"] == on["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


def test_wrong_profiles_are_found_when_the_hub_reads_them() -> None:
    with pytest.raises(TraitError, match=r"profiles\[0\].memory: '8XB'"):
        GaiaLocalSpawner(profiles=[{"key": "a", "name": "A", "memory": "8XB"}])
    with pytest.raises(TraitError, match=r"own_numbers\.limit_cores"):
        GaiaLocalSpawner(own_numbers={"limit_cores": -1})


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "../../etc", "-", "ä", "x" * 300, "a--b", "A", "", "a\n", "~root"]
)
def test_a_home_is_a_plain_directory_whatever_the_name(name: str) -> None:
    result = homes.home_name(name)
    assert "/" not in result
    assert not result.startswith((".", "-", "~"))
    assert result.isascii()
    assert result.isprintable()
    assert len(result) < 100


def test_homes_of_different_users_differ() -> None:
    names = ["ann", "ann-", "a-b", "a/b", "a.b", "a b", "a--b", "ann@x", "ann@y", "a-b--2f1b2a3c4d5e"]
    assert homes.home_name("ann") == "ann"
    assert len({homes.home_name(name) for name in names}) == len(names)


def test_notebooks_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.ipynb").write_text("1")
    monkeypatch.setattr(homes, "example_notebooks", lambda: source)
    home = tmp_path / "homes" / "ann"
    homes.prepare_home(home)
    copy = home / "notebooks" / "a.ipynb"
    assert copy.read_text() == "1"
    copy.write_text("mine")
    (source / "b.ipynb").write_text("2")
    homes.prepare_home(home)
    assert copy.read_text() == "mine"
    (home / "notebooks" / "b.ipynb").unlink()
    homes.prepare_home(home)
    assert not (home / "notebooks" / "b.ipynb").exists()
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_home_is_made_without_notebooks_to_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "example_notebooks", lambda: None)
    homes.prepare_home(tmp_path / "ann")
    homes.prepare_home(tmp_path / "ann")
    assert [path.name for path in (tmp_path / "ann").iterdir()] == [".jupyter"]


def test_the_longest_prefix_wins() -> None:
    table = RouteTable()
    table.add("/", "http://hub", {})
    table.add("/user/ann/", "http://ann/", {"user": "ann"})
    table.add("/user/ann/lab/", "http://lab", {})
    table.add("/user/a%40b/", "http://at", {})
    table.add("other.example/user/ann/", "http://host", {})
    for path, target in [
        ("/hub/home", "http://hub"),
        ("/user/ann", "http://ann"),
        ("/user/ann/?x=/user/ann/lab/", "http://ann"),
        ("/user/annabel/", "http://hub"),
        ("/user/ann/lab/tree", "http://lab"),
        ("/user/ann/labs", "http://ann"),
        ("/user/a@b/x", "http://at"),
        ("/user/a%40b/x", "http://at"),
        ("/user%2Fann/x", "http://hub"),
    ]:
        found = table.find("", path)
        assert found is not None
        assert found.target == target, path
    found = table.find("other.example:8000", "/user/ann/x")
    assert found is not None
    assert found.target == "http://host"
    table.remove("/user/ann/")
    table.remove("/user/ann/")
    assert table.get("/user/ann/") is None
    assert set(table.all()) == {"/", "/user/ann/lab/", "/user/a%40b/", "other.example/user/ann/"}


def test_headers_named_by_connection_end_here() -> None:
    kept = headers.end_to_end([("Connection", "close, X-A"), ("x-a", "1"), ("X-B", "2"), ("Upgrade", "h2c")])
    assert dict(kept) == {"X-B": "2"}


@pytest.mark.parametrize(
    ("raw", "path"),
    [("/a?b", "/a?b"), ("http://h:1/a?b", "/a?b"), ("https://h", "/"), ("*", "/*"), ("a", "/a")],
)
def test_a_request_target_becomes_a_path(raw: str, path: str) -> None:
    assert origin_form(raw) == path


def test_settings_are_for_their_owner_alone(tmp_path: Path) -> None:
    settings = HubSettings(str(tmp_path), 8000, 8001, "secret-word", "/x/operator.sock")
    path = settings.write()
    settings.write()
    assert path.stat().st_mode & 0o777 == 0o600
    assert HubSettings.read(path) == settings


def test_marked_processes_are_found_and_ended_whatever_they_do() -> None:
    stubborn = (
        "import signal, os, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid();"
        "print('on', flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", stubborn], env={**os.environ, "GAIA_UNIT": "x1"}, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        find = partial(processes.marked, "GAIA_UNIT", "x1")
        assert find() == [child.pid]
        assert processes.start_time(child.pid) is not None
        assert child.pid in processes.descendants(os.getpid())
        assert processes.end_all(find, 0.1) == []
        assert child.wait(60) == -9
    assert processes.start_time(child.pid) is None
    assert processes.end_all(find, 0.1) == []


def test_a_child_dies_with_its_parent() -> None:
    parent = (
        "import subprocess, sys; from gaia_hub.embedded.processes import die_with_parent;"
        "child = subprocess.Popen(['sleep', '600'], preexec_fn=die_with_parent());"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        descriptor = os.pidfd_open(pid)
        process.kill()
        import select

        assert select.select([descriptor], [], [], 60)[0]
        os.close(descriptor)


def test_progress_is_told_from_the_start_and_as_it_comes() -> None:
    import asyncio

    async def story() -> list[object]:
        spawner = GaiaLocalSpawner(user=SimpleNamespace(name="ann"))
        spawner.report(10, "one <b>")
        seen: list[object] = []

        async def listen() -> None:
            async for event in spawner.progress():
                seen.append(event)
                if len(seen) == 2:
                    return

        task = asyncio.ensure_future(listen())
        while not seen:
            await asyncio.sleep(0)
        spawner.report(20, "two")
        await task
        return seen

    assert asyncio.run(story()) == [
        {"progress": 10, "message": "one <b>"},
        {"progress": 20, "message": "two"},
    ]
