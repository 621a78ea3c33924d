"""What the agent's pod must have: the node's process ids, and mounts that the node sees."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.agent.pods import footing
from gaia_plugin.errors import Unusable

ASK = """
import sys
from pathlib import Path
from gaia_plugin.agent.pods.footing import check_pids
from gaia_plugin.errors import Unusable
try:
    print(check_pids(Path(sys.argv[1])))
except Unusable as refused:
    print(refused)
"""
TABLE = r"""
1 0 0:1 / / rw - overlay overlay rw
2 1 8:1 /var/lib/gaia /var/lib/gaia rw,relatime {} - ext4 /dev/sda1 rw
3 2 0:9 / /var/lib/gaia/usage/a rw shared:9 - tmpfs gaia rw
4 1 8:1 /x /var/lib/with\040space rw shared:8 - ext4 /dev/sda1 rw
"""


@pytest.fixture
def kubelet() -> Iterator[Path]:
    """The directory of a kubelet that listens: this process."""
    directory = Path(tempfile.mkdtemp(prefix="gp"))
    (directory / "device-plugins").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "device-plugins/kubelet.sock"))
        listener.listen()
        yield directory
    shutil.rmtree(directory)


def test_the_kubelet_is_known_by_its_pid(kubelet: Path) -> None:
    assert footing.kubelet_pid(kubelet) == os.getpid()
    assert footing.check_pids(kubelet)


def test_a_kubelet_that_is_away_says_nothing(tmp_path: Path) -> None:
    assert footing.kubelet_pid(tmp_path) is None
    assert not footing.check_pids(tmp_path)


def test_a_pid_namespace_of_its_own_is_refused(kubelet: Path) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    done = subprocess.run(
        [*apart, sys.executable, "-c", ASK, str(kubelet)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "hostPID: true" in done.stdout


@pytest.mark.parametrize(
    ("options", "spread"),
    [
        ("shared:7", True),
        ("shared:7 master:3", True),
        ("master:3", False),
        ("", False),
        ("unbindable", False),
    ],
)
def test_mounts_spread_where_the_state_directory_is_shared(options: str, spread: bool) -> None:
    table = TABLE.strip().format(options)
    assert footing.spreads(Path("/var/lib/gaia"), table) is spread
    assert footing.spreads(Path("/var/lib/gaia/usage"), table) is spread


@pytest.mark.parametrize(
    ("directory", "spread"),
    [("/var/lib/gaia/usage/a", True), ("/var/lib/gaia2", False), ("/var/lib/with space/x", True)],
)
def test_the_deepest_mount_counts(directory: str, spread: bool) -> None:
    assert footing.spreads(Path(directory), TABLE.strip().format("")) is spread


def test_the_refusal_names_the_line_of_the_manifest(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="mountPropagation: Bidirectional"):
        footing.check_mounts(tmp_path, "1 0 0:1 / / rw - overlay overlay rw")
