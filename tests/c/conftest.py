"""Builds libvgpu with its C test programs once, and hands out slots on the simulated GPU."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.c.slotbench import Bench

HOUSE = Path(__file__).resolve().parents[2]


def _build(folder: Path, *options: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    cmake = shutil.which("cmake", path=path)
    assert cmake, "cmake is needed to build the C tests (pip install cmake, or apt install cmake)"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            [cmake, "-S", str(HOUSE / "libvgpu"), "-B", str(folder), "-DGAIA_TESTS=ON", *options],
            [cmake, "--build", str(folder), "--parallel", "2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": path})
            assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder


@pytest.fixture(scope="session")
def build() -> Path:
    """The build folder: lib/local, lib/sim, tests/."""
    given = os.environ.get("GAIA_C_BUILD")
    return Path(given) if given else _build(HOUSE / "build" / "c")


@pytest.fixture(scope="session")
def sanitized() -> Path:
    """The same with address and undefined-behaviour sanitizers in the unit tests."""
    return _build(HOUSE / "build" / "c-sanitized", "-DGAIA_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")


@pytest.fixture
def bench(build: Path, tmp_path: Path) -> Callable[..., Bench]:
    """Make a slot: bench(cards=1, memory=..., context=...)."""

    def make(**options: object) -> Bench:
        return Bench(build, tmp_path / "gaia", **options)  # type: ignore[arg-type]

    return make
