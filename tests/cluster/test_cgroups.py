"""Which cgroups a machine gets under v1, hybrid and v2."""

import os
from pathlib import Path

import pytest

from tests.cluster import cgroups
from tests.cluster.build import tools
from tests.cluster.cgroups import Mount, mounts, own_paths
from tests.cluster.machine import Machine

HYBRID = """\
30 23 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = """\
29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
41 23 0:38 / /proc rw,relatime - proc proc rw
"""
# a cgroup v2 machine on which one v1 hierarchy without a controller that we need is mounted
UNIFIED_WITH_NAMED = UNIFIED + "50 23 0:40 / /sys/fs/named rw - cgroup none rw,name=elsewhere\n"
FOLDER = Path("/sys/fs/cgroup")
ONLY_V2 = [Mount(FOLDER, "/", ())]


@pytest.mark.parametrize(
    ("mountinfo", "expected"),
    [
        (
            HYBRID,
            [
                Mount(FOLDER / "cpu,cpuacct", "/", ("cpu", "cpuacct")),
                Mount(FOLDER / "memory", "/", ("memory",)),
                Mount(FOLDER / "systemd", "/", ("name=systemd",)),
            ],
        ),
        (UNIFIED, ONLY_V2),
        (UNIFIED_WITH_NAMED, ONLY_V2),
    ],
)
def test_hierarchies_are_those_that_hold_memory(mountinfo: str, expected: list[Mount]) -> None:
    assert mounts(mountinfo) == expected


def test_paths_may_hold_colons() -> None:
    own = own_paths("4:memory:/a:b\n3:name=systemd:/\n0::/user\n")
    assert own == {"memory": "/a:b", "name=systemd": "/", "": "/user"}


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The mount of cgroup v2, for a machine that is to know no other."""
    found = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    point = Path(next(fields[1] for fields in found if fields[2] == "cgroup2"))
    monkeypatch.setattr(cgroups, "mounts", lambda _: [Mount(point, "/", ())])
    return point


def test_under_v2_a_machine_keeps_its_processes_in_a_leaf(tmp_path: Path, unified: Path) -> None:
    cluster = f"gaia-cluster-{os.getpid()}"
    machine = Machine("alone", tmp_path / cluster / "alone", tmp_path, tools())
    (own,) = machine.cgroup.folders
    machine.power_on()
    try:
        assert own.parent == unified
        assert (own / "cgroup.procs").read_text() == ""
        assert machine.exec(["cat", "/sys/fs/cgroup/system/cgroup.procs"]).split()[0] in {"0", "1"}
        # in its own eyes the machine's cgroup is the root, and it may limit what it makes below
        assert machine.exec(["cat", "/proc/self/cgroup"]).splitlines()[-1] == "0::/system"
        assert not machine.path("/sys/fs/cgroup/memory").exists()
        machine.sh("mkdir -p /sys/fs/cgroup/kubepods/pod")
        assert (own / "kubepods/pod").is_dir()
    finally:
        machine.remove()
    assert not [path for path, _, _ in os.walk(unified) if cluster in path]
