"""What a container really gets, with real mounts, the real loader and the simulated driver.

Agent, runtime and container run in a mount namespace of their own (`machine.py`), which takes all its mounts
with it when it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaia_plugin.slots.pages import layout
from gaia_plugin.units import MEMORY_UNIT

HERE = Path(__file__).parent
LIMIT = 4 * MEMORY_UNIT
STARTED = ["init 0", "count 0 1", "context 0", f"info 0 {LIMIT}"]
EXACTLY_THE_LIMIT = [*STARTED, "alloc 0", "alloc 2"]
READ_ONLY = "Read-only file system"


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that runs in the containers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed for the program in the container (apt install build-essential)"
    program = tmp_path_factory.mktemp("probe") / "probe"
    subprocess.run([compiler, "-O1", "-o", program, HERE / "probe.c", "-ldl"], check=True, timeout=60)
    return program


@pytest.fixture(scope="module", params=["debian", "redhat"])
def seen(request: pytest.FixtureRequest, probe: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What was seen on a machine with containers of that shape."""
    assert os.geteuid() == 0, "these tests mount, as the agent does: run them as root"
    folder = tmp_path_factory.mktemp(request.param)
    words = [sys.executable, "-m", "tests.unit.cdi.machine", folder / "machine", request.param, probe]
    done = subprocess.run(
        ["unshare", "--mount", *words],
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_shadow_stands_behind_every_name_of_the_driver(seen: Any) -> None:
    assert len(seen["limit"]) == 4
    assert seen["limit"] == dict.fromkeys(seen["limit"], EXACTLY_THE_LIMIT)
    assert seen["same file"] == dict.fromkeys(seen["same file"], True)


def test_no_variable_is_needed_and_none_goes_round_it(seen: Any) -> None:
    assert seen["bare"] == ["init 0", "count 0 2", *EXACTLY_THE_LIMIT[2:]]
    assert seen["bare, on another's card"][2:] == ["context 2", "info 201 0", "alloc 201", "alloc 201"]
    assert seen["compat"] == EXACTLY_THE_LIMIT


def test_both_devices_of_a_container_are_merged(seen: Any) -> None:
    environment = seen["environment"]
    assert environment["GAIA_SLICE_PART"] == "cores"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.mark.parametrize("uid", ["0", "1000"])
def test_only_the_usage_page_can_be_written_and_by_any_user(seen: Any, uid: str) -> None:
    answers = dict(line.split(" ", 1) for line in seen["writable"][uid])
    assert answers.pop("/run/gaia/usage") == "yes"
    assert len(answers) == 3
    assert set(answers.values()) == {READ_ONLY if uid == "0" else "Permission denied"}


def test_nothing_can_be_removed(seen: Any) -> None:
    answers = dict(line.split(" ", 1) for line in seen["removable"])
    assert len(answers) == 4
    assert set(answers.values()) == {READ_ONLY, "Device or resource busy"}


def test_the_agent_sees_what_the_container_claims_also_after_its_own_restart(seen: Any) -> None:
    assert seen["held"] == [f"{line}\n" for line in [*STARTED, "alloc 0"]]
    assert seen["claimed"] == seen["claimed after a restart"] == LIMIT
    assert seen["renewed while it runs"] is False


def test_a_usage_page_cannot_take_more_of_the_host_than_its_tmpfs(seen: Any) -> None:
    _, size, why = seen["spoilt"]["grown"][0].split(" ", 2)
    assert why == "No space left on device"
    page = os.sysconf("SC_PAGE_SIZE")
    assert int(size) == -(-layout()["usage.bytes"] // page) * page
    assert seen["spoilt"]["stretched"] == EXACTLY_THE_LIMIT


def test_a_truncated_usage_page_harms_its_own_container_only(seen: Any) -> None:
    spoilt = seen["spoilt"]
    assert spoilt["cut"] == ["cut yes"]
    assert spoilt["short"][2:] == ["context 2", "info 201 0", "alloc 201", "alloc 201"]
    assert spoilt["damaged"]
    assert spoilt["pending"] is None
    assert spoilt["left to its container"]
    assert spoilt["other"] == EXACTLY_THE_LIMIT


def test_a_container_that_starts_again_has_a_sound_page(seen: Any) -> None:
    assert seen["started again"] == EXACTLY_THE_LIMIT


def test_removing_a_slot_unmounts_and_leaves_the_others(seen: Any) -> None:
    assert seen["slots"] == seen["left"] == ["bob"]
    assert len(seen["still mounted"]) == 1
