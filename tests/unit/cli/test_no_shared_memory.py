"""What a machine without a usable /dev/shm hears, and that it keeps nothing of it.

Each command runs in a mount namespace of its own, in which /dev/shm is spoilt.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPOILT = {
    "read-only": "mount -t tmpfs -o ro none /dev/shm",
    "full": "mount -t tmpfs -o size=64k none /dev/shm",
    "missing": "mount -t tmpfs none /dev && touch /dev/null && mount --bind $NULL /dev/null",
}


def gaia(root: Path, how: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `gaia` where /dev/shm is spoilt; needs what `unshare` needs."""
    null = root.parent / "null"
    script = f'touch $NULL; mount --bind /dev/null $NULL && {SPOILT[how]} && exec "$@"'
    inside = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    command = [*inside, "sh", "-c", script, "sh", sys.executable, "-m", "gaia_plugin.cli", *words]
    environ = {**os.environ, "GAIA_STATE": str(root), "NULL": str(null)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize(
    "words",
    [
        ("run", "--sim", "--memory", "1GiB", "--", "true"),
        ("demo", "--sim", "--no-open", "--port", "18765"),
        ("agent", "--sim"),
    ],
    ids=lambda words: words[0],
)
def test_what_needs_shared_memory_says_so_in_a_sentence(
    tmp_path: Path, how: str, words: tuple[str, ...]
) -> None:
    done = gaia(tmp_path / "root", how, *words)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("gaia: The simulated GPU cannot "), done.stderr
    assert done.stderr.endswith(" It needs 3 MiB in /dev/shm; in a container, mount a tmpfs there.\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "root" / "sim").exists()


@pytest.mark.parametrize("how", SPOILT)
def test_doctor_names_shared_memory(tmp_path: Path, how: str) -> None:
    done = gaia(tmp_path / "root", how, "doctor", "--sim")
    assert done.returncode == 1, done
    broken = [line for line in done.stdout.splitlines() if line.startswith("broken:")]
    assert broken, done.stdout
    assert all("/dev/shm" in line for line in broken), done.stdout
    assert gaia(tmp_path / "root", how, "paths").returncode == 0
