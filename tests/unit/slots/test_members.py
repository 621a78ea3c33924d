"""Which processes belong to a slot: by environment on one machine, by cgroup in pods."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaia_plugin.slots.members import LOOK_EVERY, ContainerMembers, LocalMembers
from gaia_plugin.slots.names import slot_name
from gaia_plugin.slots.processes import start_time

UID = "5f0c3e6a-7c1d-4f0e-9a53-0d7c4c1f2b11"
OTHER = "0a1b2c3d-1111-4222-8333-444455556666"
NOTEBOOK, SIDECAR = "ab" * 32, "cd" * 32
SLOT = slot_name(UID, "notebook")
ELSEWHERE = "0::/system.slice/sshd.service\n"
CGROUPS = {
    "cgroupfs, v1": "5:memory:/kubepods/burstable/pod{uid}/{id}\n4:cpu:/kubepods/burstable/pod{uid}/{id}\n",
    "systemd, v2": "0::/kubepods.slice/kubepods-pod{uid_}.slice/cri-containerd-{id}.scope\n",
    "seen from a cgroup namespace": "0::/../../kubepods-besteffort-pod{uid_}.slice/crio-{id}.scope\n",
    "below the container's own": "0::/kubepods/pod{uid}/{id}/init.scope\n",
}


def in_container(container: str, kind: str = "systemd, v2", uid: str = UID) -> str:
    return CGROUPS[kind].format(uid=uid, uid_=uid.replace("-", "_"), id=container)


class Proc:
    """A /proc of our own making."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def add(self, host: int, inner: int, start: int, cgroup: str) -> None:
        place = self.root / str(host)
        place.mkdir(exist_ok=True)
        numbers = ["0"] * 40
        numbers[17], numbers[19] = "1", str(start)
        (place / "stat").write_text(f"{host} (a) b) S {' '.join(numbers[1:])}")
        (place / "status").write_text(f"Name:\tpython\nNSpid:\t{host}\t{inner}\n")
        (place / "cgroup").write_text(cgroup)

    def end(self, host: int) -> None:
        shutil.rmtree(self.root / str(host))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


class Kubelet:
    """What the API server shows of the pod's containers, and a clock."""

    def __init__(self) -> None:
        self.names = {NOTEBOOK: "notebook", SIDECAR: "sidecar"}
        self.now = 0.0

    def __call__(self, uid: str) -> dict[str, str]:
        return self.names if uid == UID else {}

    def clock(self) -> float:
        return self.now


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


@pytest.fixture
def members(tmp_path: Path, proc: Proc, kubelet: Kubelet) -> ContainerMembers:
    return ContainerMembers(tmp_path / "slots", kubelet, proc.root, kubelet.clock)


@pytest.mark.parametrize("kind", CGROUPS)
def test_cgroup_tells_pod_and_container(proc: Proc, members: ContainerMembers, kind: str) -> None:
    proc.add(4711, 7, 900, in_container(NOTEBOOK, kind))
    assert members.host_pid(SLOT, 7, 900) == 4711
    assert members.contains(SLOT, 4711)
    assert not members.contains(slot_name(UID, "sidecar"), 4711)
    assert not members.contains(slot_name(OTHER, "notebook"), 4711)


def test_containers_of_a_pod_are_told_apart(proc: Proc, members: ContainerMembers) -> None:
    proc.add(100, 1, 900, in_container(NOTEBOOK))
    proc.add(200, 1, 900, in_container(SIDECAR))
    assert members.host_pid(SLOT, 1, 900) == 100
    assert members.host_pid(slot_name(UID, "sidecar"), 1, 900) == 200


def test_process_whose_container_is_not_known_yet_counts_for_each_slot_of_its_pod(
    proc: Proc, members: ContainerMembers, kubelet: Kubelet
) -> None:
    proc.add(100, 1, 900, in_container("ef" * 32))
    both = (SLOT, slot_name(UID, "sidecar"))
    assert [members.contains(slot, 100) for slot in both] == [True, True]
    kubelet.names["ef" * 32] = "sidecar"
    assert [members.contains(slot, 100) for slot in both] == [False, True]
    assert not members.contains(slot_name(OTHER, "notebook"), 100)


def test_ended_and_recycled_pids_are_nobody(proc: Proc, members: ContainerMembers, kubelet: Kubelet) -> None:
    proc.add(100, 1, 900, in_container(NOTEBOOK))
    assert members.host_pid(SLOT, 1, 900) == 100
    proc.end(100)
    kubelet.now += 10
    assert members.host_pid(SLOT, 1, 900) is None
    proc.add(100, 1, 950, ELSEWHERE)
    kubelet.now += 10
    assert members.host_pid(SLOT, 1, 950) is None
    assert not members.contains(SLOT, 100)


def test_who_cannot_be_told_yet_counts_among_the_living(
    proc: Proc, members: ContainerMembers, kubelet: Kubelet
) -> None:
    """All processes are looked at only now and then, whatever a tenant writes into its page."""
    assert members.host_pid(SLOT, 1, 900) is None
    proc.add(100, 3, 950, in_container(NOTEBOOK))
    assert members.host_pid(SLOT, 3, 950) == 0
    assert members.host_pid(SLOT, 1, 900) is None, "it was known to be dead"
    kubelet.now += LOOK_EVERY
    assert members.host_pid(SLOT, 3, 950) == 100


def test_what_was_seen_on_a_card_is_known_from_then_on(proc: Proc, members: ContainerMembers) -> None:
    assert members.host_pid(SLOT, 1, 900) is None
    proc.add(100, 3, 950, in_container(NOTEBOOK))
    assert members.contains(SLOT, 100)
    assert members.host_pid(SLOT, 3, 950) == 100


def test_a_process_is_moved_into_its_cgroup_after_it_was_started(
    proc: Proc, members: ContainerMembers
) -> None:
    start = round(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    proc.add(100, 1, start, ELSEWHERE)
    assert not members.contains(SLOT, 100)
    proc.add(100, 1, start, in_container(NOTEBOOK))
    assert members.contains(SLOT, 100)


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
