"""What the shadow libraries are made of: dependencies, exports, symbol versions, hooks, unit tests."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "libvgpu" / "include"
ROW = re.compile(r"^(S|PASS)\((\w+),(\d+),([01]),(\w+)[,)]", re.MULTILINE)


def _rows(name: str) -> list[tuple[str, ...]]:
    return ROW.findall((INCLUDE / name).read_text())


def test_every_variant_of_a_hooked_name_is_hooked_or_left_out_on_purpose() -> None:
    known = {row[1:] for row in _rows("hooks.def")}
    bases = {row[1] for row in _rows("hooks.def")}
    driver = {row[1:] for row in _rows("cuda_symbols.def") if row[1] in bases}
    assert driver == known


def test_every_hook_is_exported_and_nothing_else(build: Path) -> None:
    hooks = {row[4] for row in _rows("hooks.def") if row[0] == "S"}
    for variant in ("local", "container"):
        out = subprocess.run(
            ["nm", "-D", "--defined-only", build / "lib" / variant / "libcuda.so.1"],
            capture_output=True,
            text=True,
        ).stdout
        exported = {line.split()[-1] for line in out.splitlines()}
        assert exported == hooks
        assert not any("@" in name for name in exported), "no symbol versions of our own"


@pytest.mark.parametrize(
    ("variant", "driver"), [("local", "$ORIGIN/driver"), ("container", "/run/gaia/driver")]
)
@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_the_real_driver_is_the_first_dependency(build: Path, variant: str, driver: str, name: str) -> None:
    out = subprocess.run(
        ["readelf", "-d", build / "lib" / variant / name], capture_output=True, text=True
    ).stdout
    needed = re.findall(r"NEEDED.*\[(.+)\]", out)
    assert needed[0] == f"{driver}/{name}"
    assert set(needed[1:]) <= {"libc.so.6", "libdl.so.2"}
    assert f"soname: [{name}]" in out


@pytest.mark.parametrize("variant", ["local", "container"])
@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_no_symbol_is_newer_than_glibc_2_17(build: Path, variant: str, name: str) -> None:
    out = subprocess.run(
        ["objdump", "-T", build / "lib" / variant / name], capture_output=True, text=True
    ).stdout
    versions = [tuple(map(int, text.split("."))) for text in re.findall(r"GLIBC_([0-9.]+)", out)]
    assert max(versions) <= (2, 17)
    assert not {"exit", "abort", "signal", "sigaction", "umask", "printf"} & set(
        re.findall(r"UND.* (\w+)$", out, re.MULTILINE)
    )


@pytest.mark.parametrize("program", ["table_test", "register_test", "account_test", "bucket_test"])
def test_units(sanitized: Path, program: str) -> None:
    done = subprocess.run([sanitized / "tests" / program], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
