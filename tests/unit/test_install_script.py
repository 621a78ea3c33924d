"""What `make install` says where it cannot work, and that it makes nothing then."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "install.sh"

RUNS = "#!/bin/sh\nexit 0\n"
OLD = """#!/bin/sh
case "$2" in *version_info*) exit 1 ;; esac
[ "$1" = --version ] && echo Python 3.8.1
exit 0
"""
NO_VENV = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexit 0\n'
BROKEN = "#!/bin/sh\nexit 127\n"


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        (None, "no python3 here. Install Python 3.11 or newer"),
        (BROKEN, "python3 is there but does not run"),
        (OLD, "Python 3.8.1 is too old. Gaia needs Python 3.11 or newer"),
        (NO_VENV, "cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv."),
        (RUNS, "no C compiler here; libvgpu is compiled on this machine."),
    ],
    ids=["no python", "broken python", "old python", "no venv", "no compiler"],
)
def test_what_is_missing_is_named_and_nothing_is_made(
    tmp_path: Path, python: str | None, sentence: str
) -> None:
    found = tmp_path / "bin"
    found.mkdir()
    for tool in ("bash", "dirname"):
        (found / tool).symlink_to(str(shutil.which(tool)))
    if python is not None:
        (found / "python3").write_text(python)
        (found / "python3").chmod(0o755)
    tree = tmp_path / "tree"
    (tree / "tools").mkdir(parents=True)
    shutil.copy(SCRIPT, tree / "tools")
    done = subprocess.run(
        ["bash", tree / "tools" / "install.sh"],
        env={"PATH": str(found)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gaia: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert [path.name for path in tree.iterdir()] == ["tools"]
