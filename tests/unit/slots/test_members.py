"""Which processes belong to a slot: by environment on one machine, by cgroup in pods."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.slots.members import ContainerMembers, LocalMembers
from gaia_plugin.slots.names import slot_name
from gaia_plugin.slots.processes import start_time

UID = "5f0c3e6a-7c1d-4f0e-9a53-0d7c4c1f2b11"
OTHER = "0a1b2c3d-1111-4222-8333-444455556666"
CGROUPS = {
    "cgroupfs, v1": "5:memory:/kubepods/burstable/pod{uid}/01\n4:cpu:/kubepods/burstable/pod{uid}/01\n",
    "systemd, v2": "0::/kubepods.slice/kubepods-pod{uid_}.slice/cri-containerd-0123abcd.scope\n",
    "seen from a cgroup namespace": "0::/../../kubepods-pod{uid_}.slice/crio-0123abcd.scope\n",
}


class Proc:
    """A /proc of our own making."""

    def __init__(self, root: Path, slots: Path) -> None:
        self.root, self.slots = root, slots

    def add(self, host: int, inner: int, start: int, cgroup: str, slot: str | None = None) -> None:
        place = self.root / str(host)
        place.mkdir(parents=True, exist_ok=True)
        numbers = ["0"] * 40
        numbers[17], numbers[19] = "1", str(start)
        (place / "stat").write_text(f"{host} (a) b) S {' '.join(numbers[1:])}")
        (place / "status").write_text(f"Name:\tpython\nNSpid:\t{host}\t{inner}\n")
        (place / "cgroup").write_text(cgroup)
        mount = place / "root" / "run" / "gaia"
        if slot is not None and not mount.is_symlink():
            mount.parent.mkdir(parents=True, exist_ok=True)
            mount.symlink_to(self.slots / slot)

    def end(self, host: int) -> None:
        for name in ("stat", "status", "cgroup"):
            (self.root / str(host) / name).unlink()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc", tmp_path / "slots")


@pytest.fixture
def members(proc: Proc) -> ContainerMembers:
    proc.root.mkdir()
    for container in ("notebook", "sidecar"):
        (proc.slots / slot_name(UID, container)).mkdir(parents=True)
    times = iter(range(1000))
    return ContainerMembers(proc.slots, proc.root, clock=lambda: float(next(times)))


@pytest.mark.parametrize("kind", CGROUPS)
def test_cgroup_tells_the_pod(proc: Proc, members: ContainerMembers, kind: str) -> None:
    text = CGROUPS[kind]
    proc.add(4711, 7, 900, text.format(uid=UID, uid_=UID.replace("-", "_")), slot_name(UID, "notebook"))
    assert members.host_pid(slot_name(UID, "notebook"), 7, 900) == 4711
    assert members.contains(slot_name(UID, "notebook"), 4711)
    assert not members.contains(slot_name(OTHER, "notebook"), 4711)


def test_containers_of_a_pod_are_told_apart_by_their_slot_directory(
    proc: Proc, members: ContainerMembers
) -> None:
    cgroup = CGROUPS["systemd, v2"].format(uid_=UID.replace("-", "_"))
    for host, container in ((100, "notebook"), (200, "sidecar")):
        proc.add(host, 1, 900, cgroup, slot_name(UID, container))
    assert members.host_pid(slot_name(UID, "notebook"), 1, 900) == 100
    assert members.host_pid(slot_name(UID, "sidecar"), 1, 900) == 200


def test_process_that_left_its_root_still_counts(proc: Proc, members: ContainerMembers) -> None:
    proc.add(100, 1, 900, CGROUPS["systemd, v2"].format(uid_=UID.replace("-", "_")))
    assert members.contains(slot_name(UID, "notebook"), 100)


def test_ended_and_recycled_pids_are_nobody(proc: Proc, members: ContainerMembers) -> None:
    slot, cgroup = slot_name(UID, "notebook"), CGROUPS["systemd, v2"].format(uid_=UID.replace("-", "_"))
    proc.add(100, 1, 900, cgroup, slot)
    assert members.host_pid(slot, 1, 900) == 100
    proc.end(100)
    assert members.host_pid(slot, 1, 900) is None
    proc.add(100, 1, 950, "0::/system.slice/sshd.service\n")
    assert members.host_pid(slot, 1, 900) is None
    assert members.host_pid(slot, 1, 950) is None
    assert not members.contains(slot, 100)


def test_all_processes_are_looked_at_only_now_and_then(proc: Proc) -> None:
    proc.root.mkdir()
    slot = slot_name(UID, "notebook")
    (proc.slots / slot).mkdir(parents=True)
    members = ContainerMembers(proc.slots, proc.root, clock=lambda: 5.0)
    assert members.host_pid(slot, 1, 900) is None
    proc.add(100, 1, 900, CGROUPS["systemd, v2"].format(uid_=UID.replace("-", "_")), slot)
    assert members.host_pid(slot, 1, 900) is None
    assert members.contains(slot, 100)
    assert members.host_pid(slot, 1, 900) == 100, "what was seen on a card is known from then on"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "GAIA_SLOT_SOCKET": str(tmp_path / "alice" / "agent.sock")}
    process = subprocess.Popen([sys.executable, "-c", "input()"], env=environ, stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_local_program_is_in_the_slot_it_was_started_in(
    tmp_path: Path, program: subprocess.Popen[bytes]
) -> None:
    members = LocalMembers(tmp_path)
    start = start_time(program.pid)
    assert start is not None
    assert members.contains("alice", program.pid)
    assert not members.contains("bob", program.pid)
    assert members.host_pid("alice", program.pid, start) == program.pid
    assert members.host_pid("alice", program.pid, start + 1) is None
