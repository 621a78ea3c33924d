"""A fake libnvidia-ml.so.1 with habits to order, compiled once per variant."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.gpu.fake_nvml import SONAME, FakeDriver

SOURCE = Path(__file__).with_name("fake_nvml.c")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that compiles a variant and gives the library's path."""
    made: dict[tuple[str, ...], Path] = {}

    def compile_variant(*flags: str) -> Path:
        if flags not in made:
            path = tmp_path_factory.mktemp("nvml") / SONAME
            shared = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{SONAME}"]
            subprocess.run(["cc", *shared, *flags, "-o", str(path), str(SOURCE)], check=True)
            made[flags] = path
        return made[flags]

    return compile_variant


@pytest.fixture
def fake(compiled: Callable[..., Path], tmp_path: Path) -> Callable[..., FakeDriver]:
    """Return a function that makes a driver directory of its own, with a library of its own."""

    def make(*flags: str) -> FakeDriver:
        directory = tmp_path / "-".join(["driver", *flags])
        directory.mkdir()
        shutil.copy(compiled(*flags), directory / SONAME)
        return FakeDriver(directory)

    return make
