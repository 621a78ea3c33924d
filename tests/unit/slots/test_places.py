"""Where a process is, who has its pid elsewhere, and who lives in a container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gaia_plugin.slots import pages
from gaia_plugin.slots.members import LOOK_EVERY, ContainerMembers, Place
from gaia_plugin.slots.names import slot_name
from gaia_plugin.slots.usage import read_usage

UID = "5f0c3e6a-7c1d-4f0e-9a53-0d7c4c1f2b11"
OTHER = "0a1b2c3d-1111-4222-8333-444455556666"
NOTEBOOK, SIDECAR, LATE = "ab" * 32, "cd" * 32, "ef" * 32
SLOT = slot_name(UID, "notebook")


class Machine:
    """A /proc of our own making, and a clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        root.mkdir()

    def names(self, uid: str) -> Mapping[str, str]:
        return {NOTEBOOK: "notebook", SIDECAR: "sidecar"} if uid == UID else {}

    def add(self, host: int, inner: int, start: int, uid: str, container: str) -> None:
        place = self.root / str(host)
        place.mkdir()
        numbers = ["0"] * 40
        numbers[17], numbers[19] = "1", str(start)
        (place / "stat").write_text(f"{host} (python) S {' '.join(numbers[1:])}")
        (place / "status").write_text(f"NSpid:\t{host}\t{inner}\n")
        (place / "cgroup").write_text(f"0::/kubepods/pod{uid}/{container}\n" if uid else "0::/user.slice\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "proc")


@pytest.fixture
def members(tmp_path: Path, machine: Machine) -> ContainerMembers:
    return ContainerMembers(tmp_path / "slots", machine.names, machine.root, lambda: machine.now)


def test_a_process_is_where_its_cgroup_is(machine: Machine, members: ContainerMembers) -> None:
    machine.add(100, 7, 900, UID, NOTEBOOK)
    machine.add(200, 7, 900, UID, LATE)
    machine.add(300, 300, 900, "", "")
    assert members.place(100) == Place(100, 900, 7, UID, NOTEBOOK, "notebook")
    assert members.place(200) == Place(200, 900, 7, UID, LATE, "")  # not shown by the API server yet
    assert members.place(300) == Place(300, 900, 300)
    assert members.place(400) is None


def test_only_those_of_exactly_this_container_live_in_it_the_first_one_first(
    machine: Machine, members: ContainerMembers
) -> None:
    machine.add(104, 4, 900, UID, NOTEBOOK)
    machine.add(109, 1, 900, UID, NOTEBOOK)
    machine.add(200, 1, 900, UID, SIDECAR)
    machine.add(300, 1, 900, OTHER, NOTEBOOK)
    machine.add(400, 400, 900, "", "")
    assert [place.pid for place in members.living(UID, NOTEBOOK)] == [109, 104]
    assert members.living("", "") == []
    machine.add(105, 5, 901, UID, NOTEBOOK)
    assert [place.pid for place in members.living(UID, NOTEBOOK)] == [109, 104, 105]


def test_a_process_of_the_same_pid_and_start_elsewhere_is_found(
    machine: Machine, members: ContainerMembers
) -> None:
    machine.add(100, 7, 900, UID, NOTEBOOK)
    machine.add(300, 7, 900, OTHER, SIDECAR)
    assert members.host_pid(SLOT, 7, 900) == 100
    machine.now += LOOK_EVERY
    assert members.host_pid(SLOT, 8, 900) is None
    assert [place.pid for place in members.elsewhere(SLOT, 7, 900)] == [300]
    assert members.elsewhere(SLOT, 7, 901) == members.elsewhere(SLOT, 8, 900) == []


def test_a_page_tells_who_is_not_there_and_which_library_the_others_have(tmp_path: Path) -> None:
    page, numbers = tmp_path / "usage", pages.layout()
    pages.create_usage(page)
    base, step = numbers["usage.process"], numbers["usage.process.bytes"]
    with open(page, "r+b") as file:
        words = {
            numbers["usage.high_water"]: 2,
            base + numbers["usage.process.owner"]: pages.owner_word(7, 900),
            base + numbers["usage.process.library"]: 1 << 16,
            base + step + numbers["usage.process.owner"]: pages.owner_word(8, 901),
        }
        for offset, word in words.items():
            file.seek(offset)
            file.write(word.to_bytes(8, "little"))
    usage = read_usage(page, 1, lambda pid, start: 4711 if pid == 7 else None)
    assert [(each.pid, each.library) for each in usage.processes] == [(4711, 1 << 16)]
    assert usage.absent == ((8, 901),)
